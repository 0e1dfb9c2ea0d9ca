"""Disables the frameworks' own polling and webhooks in bot processes, and runs a bot's program until it polls.

A module that starts polling during its import is refused; polling that starts later, in a thread or a hook, is logged
and does nothing; an `async def main()` waits where it would poll (loader.py). A program (a `main` without parameters,
or a file) stops for good where it would poll: its call never returns, so that no `except:` calls it again and no
`finally:` closes what handlers use. None of them sets a webhook.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar, copy_context
from functools import partial, wraps
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

from chatlanes.bot.adapters.errors import having
from chatlanes.bot.adapters.imports import importing_bot, on_import
from chatlanes.settings.bot_files import likely_path
from chatlanes.settings.imports import ImportPathError, explained

log = logging.getLogger(__name__)

_TELEBOT_POLLS = ("polling", "infinity_polling", "run_webhooks")
_SETS_WEBHOOK = ("set_webhook", "delete_webhook")
#: module -> class, its methods that poll or listen and do not return, and the others that are replaced. Every worker
#: imports the bot, and must not replace the receiver's webhook. A main of python-telegram-bot calls `start` before it
#: polls; the updater, which polls, does not know the application.
REPLACED: Mapping[str, tuple[str, Sequence[str], Sequence[str]]] = {
    "telebot": ("TeleBot", _TELEBOT_POLLS, _SETS_WEBHOOK),
    "telebot.async_telebot": ("AsyncTeleBot", _TELEBOT_POLLS, _SETS_WEBHOOK),
    "aiogram.dispatcher.dispatcher": ("Dispatcher", ("run_polling", "start_polling"), ()),
    "aiogram.client.bot": ("Bot", (), _SETS_WEBHOOK),
    "telegram.ext._application": ("Application", ("run_polling", "run_webhook"), ("start",)),
    "telegram.ext._updater": ("Updater", ("start_polling", "start_webhook"), ()),
    "telegram._bot": ("Bot", (), _SETS_WEBHOOK),
}
#: Packages whose frames are skipped to find the bot's own line.
_BETWEEN = frozenset({"telebot", "aiogram", "telegram", "asyncio", "threading", "contextlib", "chatlanes"})

_expected: ContextVar[Polling | None] = ContextVar("the polling call that is expected of a main", default=None)
#: Methods that poll. A coroutine that calls one by its name is a bot's main.
POLLING_CALLS = frozenset(name for _, polling, _ in REPLACED.values() for name in polling)

_caller: ContextVar[greenlet | None] = ContextVar("where a program continues when it polls", default=None)
#: Programs that polled. One that was collected would be ended by an exception.
_stopped: list[greenlet] = []


class PollingRefused(SystemExit):
    """Raised instead of polling where the program cannot be stopped. A SystemExit, because bots retry other errors
    indefinitely, as network failures.

    `bot`: the object that would poll; for a dispatcher, a tuple with its bots.
    """

    def __init__(self, place: str, bot: Any) -> None:
        super().__init__(place)
        self.bot = bot


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


def expected(polling: Polling) -> AbstractContextManager[None]:
    """Wraps a running `async def main()`."""
    return having(_expected, polling)


@contextmanager
def refused(label: str) -> Iterator[None]:
    """Wraps the import of a bot. Raises ImportPathError if it starts polling."""
    for name in REPLACED:
        on_import(name, _switch_off)
    try:
        with having(importing_bot, True):
            yield
    except PollingRefused as found:
        raise ImportPathError(
            f"{label}: its module starts polling while it is imported ({found}), which would never end. Here, updates "
            'come through the lanes: put that line under `if __name__ == "__main__":`.'
        ) from None


def _switch_off(module: ModuleType) -> None:
    kind, polling, others = REPLACED[module.__name__]
    for name in (*polling, *others):
        by = _polls if name in polling else _starts if name == "start" else _sets_webhook
        method = getattr(getattr(module, kind), name)
        setattr(getattr(module, kind), name, wraps(method)(by(method)))


def _polls(method: Callable[..., Any]) -> Callable[..., Any]:
    known = inspect.signature(method).parameters

    def polled_with(bot: Any, *given: Any, **named: Any) -> Any:
        if not method.__qualname__.startswith("Dispatcher."):
            return bot
        bot.workflow_data.update({name: value for name, value in named.items() if name not in known})
        return (bot, *given)

    def refuse(*given: Any, **named: Any) -> Any:
        place = f"{method.__name__} in {_place()}"
        if importing_bot.get() or _expected.get():
            bot = polled_with(*given, **named)
            stop(bot)
            raise PollingRefused(place, bot)
        log.warning("%s does nothing: here, updates come through the lanes", place)
        raise SystemExit(place)  # ends a thread without a traceback

    async def skip(*given: Any, **named: Any) -> None:
        """Returns, so that a start-up hook continues after it."""
        if polling := _expected.get():
            await polling.begin(polled_with(*given, **named))
            return
        with suppress(SystemExit) if not importing_bot.get() else nullcontext():
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
        is_starting = importing_bot.get() or _expected.get() is not None
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


def until_polling(program: Callable[[], Any]) -> Any:
    """Run the program until it polls, and return what it polls with: an object, or the coroutine of an `async def main`
    that polls, which has not begun. A program that ends before returns its own result.
    """
    here = copy_context()
    here.run(_caller.set, getcurrent())
    running = greenlet(program)
    running.gr_context = here
    own, asyncio.run = asyncio.run, _run_or_stop(asyncio.run)
    try:
        found = running.switch()
    except PollingRefused as started:
        return started.bot
    finally:
        asyncio.run = own
    if not running.dead:
        _stopped.append(running)
    return found


def stop(bot: Any) -> None:
    """Stop the program that `until_polling` runs here. Returns if there is none, or if it is in an event loop."""
    caller = _caller.get()
    if caller is not None and asyncio._get_running_loop() is None:
        caller.switch(bot)


def run_file(setting: str, path: str) -> Any:
    """Run the file as Python runs a script, until it polls; returns what it polls with. Raises ImportPathError."""
    file = Path(path).resolve()
    if not file.is_file():
        raise ImportPathError(f"{setting}={path}: there is no file {file}; start in the directory that holds it.")
    sys.path.insert(0, str(file.parent))
    spec = spec_from_file_location("__main__", file)
    assert spec is not None  # noqa: S101  for a path that ends in .py
    assert spec.loader is not None  # noqa: S101  likewise
    # Kept: stored data names the classes of the script by this module.
    sys.modules["__main__"] = module = module_from_spec(spec)
    with explained(setting, path, f"running {file.name}"):
        found = until_polling(partial(spec.loader.exec_module, module))
    if found is None:
        raise ImportPathError(
            f"{setting}={path} ended without polling; name what handles its updates: {likely_path(path)}."
        )
    return found


@contextmanager
def command_line(label: str, arguments: str) -> Iterator[None]:
    """Wraps a bot's code. Raises ImportPathError if it would end this process, as argparse does."""
    own, sys.argv = sys.argv, [label.partition("=")[2].partition(":")[0], *shlex.split(arguments)]
    try:
        yield
    except SystemExit as ended:
        raise ImportPathError(
            f"{label} ended itself with SystemExit({ended.code}); its command line is the setting BOT_ARGS."
        ) from None
    finally:
        sys.argv = own


def _run_or_stop(own: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(own)
    def run(main: Any, *given: Any, **named: Any) -> Any:
        if inspect.iscoroutine(main) and not POLLING_CALLS.isdisjoint(main.cr_code.co_names):
            stop(main)
        try:
            return own(main, *given, **named)
        except PollingRefused as started:
            stop(started.bot)
            raise

    return run
