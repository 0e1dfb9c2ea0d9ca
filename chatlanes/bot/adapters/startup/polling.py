"""Disables the frameworks' own polling and webhooks in processes that run bots.

A module that starts polling during its import is refused with the line that does it; polling that starts later, in a
thread or a hook, is logged and does nothing; a program stops where it would poll (program.py), and an
`async def main()` waits there (async_main.py). None of them sets a webhook. No framework is imported here; each is
changed when the bot imports it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from chatlanes.bot.adapters.startup import program
from chatlanes.bot.adapters.startup.import_hook import on_import
from chatlanes.bot.adapters.startup.program import PollingRefused
from chatlanes.settings.imports import BotImportError

log = logging.getLogger(__name__)

#: module -> class -> methods that poll or listen and do not return.
POLLING: Mapping[str, Mapping[str, Sequence[str]]] = {
    "telebot": {"TeleBot": ("polling", "infinity_polling", "run_webhooks")},
    "telebot.async_telebot": {"AsyncTeleBot": ("polling", "infinity_polling", "run_webhooks")},
    "aiogram.dispatcher.dispatcher": {"Dispatcher": ("run_polling", "start_polling")},
    "telegram.ext._application": {"Application": ("run_polling", "run_webhook")},
    "telegram.ext._updater": {"Updater": ("start_polling", "start_webhook")},
}
#: Classes that can set a webhook. Every worker imports the bot, and must not replace the receiver's webhook.
WEBHOOK = {
    "telebot": "TeleBot",
    "telebot.async_telebot": "AsyncTeleBot",
    "aiogram.client.bot": "Bot",
    "telegram._bot": "Bot",
}
#: Called by a main of python-telegram-bot before it polls. It is the place to learn the application, which the updater
#: does not know.
_STARTS = {"telegram.ext._application": ("Application", "start")}
_SETS_WEBHOOK = ("set_webhook", "delete_webhook")
#: Packages whose frames are skipped to find the bot's own line.
_BETWEEN = frozenset({"telebot", "aiogram", "telegram", "asyncio", "threading", "contextlib", "chatlanes"})

_importing: ContextVar[bool] = ContextVar("importing a bot", default=False)
_expected: ContextVar[Polling | None] = ContextVar("the polling call that is expected of a main", default=None)


class Polling:
    """The polling call of a running `async def main()`. `bot`: the object it polls with. Used on one event loop."""

    def __init__(self) -> None:
        self.bot: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._has_ended = asyncio.Event()

    async def begin(self, bot: Any) -> None:
        """Record the bot; returns when the process shuts down."""
        if not self.bot.done():
            self.bot.set_result(bot)
        elif not self._has_ended.is_set() and self.bot.result() != bot:
            log.error("main() polls again with another bot, which is not served")
        await self._has_ended.wait()

    def end(self) -> None:
        self._has_ended.set()


@contextmanager
def expected(polling: Polling) -> Iterator[None]:
    """Wraps a running `async def main()`."""
    token = _expected.set(polling)
    try:
        yield
    finally:
        _expected.reset(token)


@contextmanager
def refused(label: str) -> Iterator[None]:
    """Wraps the import of a bot. Raises BotImportError if it starts polling."""
    for name in {*POLLING, *WEBHOOK}:
        on_import(name, _switch_off)
    token = _importing.set(True)
    try:
        yield
    except PollingRefused as found:
        raise BotImportError(
            f"{label}: its module starts polling while it is imported ({found}), which would never end. Here, updates "
            'come through the lanes: put that line under `if __name__ == "__main__":`.'
        ) from None
    finally:
        _importing.reset(token)


def _switch_off(module: ModuleType) -> None:
    for kind, methods in POLLING.get(module.__name__, {}).items():
        for name in methods:
            _replace(getattr(module, kind), name, _polls)
    if module.__name__ in WEBHOOK:
        for name in _SETS_WEBHOOK:
            _replace(getattr(module, WEBHOOK[module.__name__]), name, _sets_webhook)
    if module.__name__ in _STARTS:
        kind, name = _STARTS[module.__name__]
        _replace(getattr(module, kind), name, _starts)


def _replace(kind: type, name: str, by: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    method = getattr(kind, name)
    setattr(kind, name, functools.wraps(method)(by(method)))


def _polls(method: Callable[..., Any]) -> Callable[..., Any]:
    known = inspect.signature(method).parameters

    def polled_with(bot: Any, *given: Any, **named: Any) -> Any:
        if not method.__qualname__.startswith("Dispatcher."):
            return bot
        bot.workflow_data.update({name: value for name, value in named.items() if name not in known})
        return (bot, *given)

    def refuse(*given: Any, **named: Any) -> Any:
        place = f"{method.__name__} in {_place()}"
        if _importing.get() or _expected.get():
            bot = polled_with(*given, **named)
            program.stop(bot)
            raise PollingRefused(place, bot)
        log.warning("%s does nothing: here, updates come through the lanes", place)
        raise SystemExit(place)  # ends a thread without a traceback

    async def skip(*given: Any, **named: Any) -> None:
        """Returns, so that a start-up hook continues after it."""
        if polling := _expected.get():
            await polling.begin(polled_with(*given, **named))
            return
        with suppress(SystemExit) if not _importing.get() else nullcontext():
            refuse(*given, **named)

    return skip if inspect.iscoroutinefunction(method) else refuse


def _starts(method: Callable[..., Any]) -> Callable[..., Any]:
    async def start(application: Any, *given: Any, **named: Any) -> Any:
        polling = _expected.get()
        if polling is None:
            return await method(application, *given, **named)
        await polling.begin(application)
        raise asyncio.CancelledError  # the code after it usually waits for a signal that never comes

    return start


def _sets_webhook(method: Callable[..., Any]) -> Callable[..., Any]:
    def is_skipped() -> bool:
        is_starting = _importing.get() or _expected.get() is not None
        if is_starting:
            log.warning("%s in %s does nothing in a worker's start-up: see docs/webhook.md", method.__name__, _place())
        return is_starting

    def unless_importing(*arguments: Any, **named: Any) -> Any:
        return is_skipped() or method(*arguments, **named)

    async def async_unless_importing(*arguments: Any, **named: Any) -> Any:
        return is_skipped() or await method(*arguments, **named)

    return async_unless_importing if inspect.iscoroutinefunction(method) else unless_importing


def _place() -> str:
    """The line of the bot that makes the call."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        if frame.f_back is None:
            return "a thread"
        frame = frame.f_back
    return f"{frame.f_code.co_filename}, line {frame.f_lineno}"
