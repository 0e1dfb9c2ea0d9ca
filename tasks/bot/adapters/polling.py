"""A framework's own ways of getting updates, switched off in the processes that run bots.

Promises that a module which starts polling while it is imported is refused with its line, instead of being waited for;
that what starts polling later, in a thread or a hook, is told in the log and gets none; and that no import sets a
webhook. Imports no framework: each is changed when the bot's module imports it.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from tasks.bot.adapters.on_import import on_import
from tasks.imports import BotImportError

log = logging.getLogger(__name__)

#: module -> class -> what of it polls, or listens, and does not end.
POLLING: Mapping[str, Mapping[str, Sequence[str]]] = {
    "telebot": {"TeleBot": ("polling", "infinity_polling", "run_webhooks")},
    "telebot.async_telebot": {"AsyncTeleBot": ("polling", "infinity_polling", "run_webhooks")},
    "aiogram.dispatcher.dispatcher": {"Dispatcher": ("run_polling", "start_polling")},
    "telegram.ext._application": {"Application": ("run_polling", "run_webhook")},
    "telegram.ext._updater": {"Updater": ("start_polling", "start_webhook")},
}
#: Every worker imports the bot: none of them may take the webhook from the receiver.
WEBHOOK = {"telebot": "TeleBot", "telebot.async_telebot": "AsyncTeleBot"}
_SETS_WEBHOOK = ("set_webhook", "delete_webhook")
#: Packages between what is called and the bot's own line.
_BETWEEN = frozenset({"telebot", "aiogram", "telegram", "asyncio", "threading", "contextlib", "tasks"})

_importing: ContextVar[bool] = ContextVar("importing a bot", default=False)


class PollingRefused(SystemExit):
    """Not to be taken for a failure of the network: bots wait after those, and try again for ever.

    `bot` was about to poll: for a dispatcher, a tuple with its bots.
    """

    def __init__(self, place: str, bot: Any) -> None:
        super().__init__(place)
        self.bot = bot


@contextmanager
def refused(said: str) -> Iterator[None]:
    """Around the import of a bot. Raises BotImportError when it starts polling."""
    for name in POLLING:
        on_import(name, _switch_off)
    token = _importing.set(True)
    try:
        yield
    except PollingRefused as found:
        raise BotImportError(
            f"{said}: its module starts polling while it is imported ({found}), which would never end. Updates come "
            'through the lanes here: put that line under `if __name__ == "__main__":`.'
        ) from None
    finally:
        _importing.reset(token)


def _switch_off(module: ModuleType) -> None:
    for kind, methods in POLLING[module.__name__].items():
        for name in methods:
            _replace(getattr(module, kind), name, _polls)
    if module.__name__ in WEBHOOK:
        for name in _SETS_WEBHOOK:
            _replace(getattr(module, WEBHOOK[module.__name__]), name, _sets_webhook)


def _replace(kind: type, name: str, by: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    method = getattr(kind, name)
    setattr(kind, name, functools.wraps(method)(by(method)))


def _polls(method: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(bot: Any, *given: Any, **_: Any) -> Any:
        place = f"{method.__name__} in {_place()}"
        if _importing.get():
            raise PollingRefused(place, (bot, *given) if method.__qualname__.startswith("Dispatcher.") else bot)
        log.warning("%s does nothing: updates come through the lanes here", place)
        raise SystemExit(place)  # ends a thread in silence

    async def pass_by(*given: Any, **_: Any) -> None:
        """A start-up hook goes on behind it."""
        with suppress(SystemExit) if not _importing.get() else nullcontext():
            refuse(*given)

    return pass_by if inspect.iscoroutinefunction(method) else refuse


def _sets_webhook(method: Callable[..., Any]) -> Callable[..., Any]:
    def is_skipped() -> bool:
        if _importing.get():
            log.warning("%s in %s is not done at import: see docs/webhook.md", method.__name__, _place())
        return _importing.get()

    def unless_importing(*arguments: Any, **named: Any) -> Any:
        return is_skipped() or method(*arguments, **named)

    async def soon_unless_importing(*arguments: Any, **named: Any) -> Any:
        return is_skipped() or await method(*arguments, **named)

    return soon_unless_importing if inspect.iscoroutinefunction(method) else unless_importing


def _place() -> str:
    """The bot's own line, which asks for it."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        if frame.f_back is None:
            return "a thread"
        frame = frame.f_back
    return f"{frame.f_code.co_filename}, line {frame.f_lineno}"
