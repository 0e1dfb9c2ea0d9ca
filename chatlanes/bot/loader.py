"""Loads the bot that BOT names, or the one that a factory or a `main` there makes.

Guarantees a Bot, or one sentence that says what to do. A plain factory is called once, as a part of the import, and
nothing polls. Does not call the handler.
"""

import inspect
import time
from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any

from chatlanes.bot.adapters import adapted, importing
from chatlanes.bot.adapters.async_handler import AsyncHandler, is_async
from chatlanes.bot.adapters.startup import background
from chatlanes.bot.adapters.startup.async_main import AsyncMain
from chatlanes.bot.adapters.startup.polling import PollingRefused
from chatlanes.bot.async_context import SessionPrefetch, awaited
from chatlanes.bot.bot import Bot, UpdateTimeoutError, check_takes
from chatlanes.bot.context import Context
from chatlanes.bot.event_loop import OverdueError, event_loop
from chatlanes.lanes.runtime import os_threads
from chatlanes.settings.imports import BotImportError, check_callable, import_object
from chatlanes.telegram.client import BotApi


def load_bot(path: str, setting: str = "BOT", api: BotApi | None = None) -> Bot:
    """The bot at `module:attribute`, or one of the handler or of the framework's object there; each `async def` comes
    wrapped. `setting` names it; `api` is what a framework's calls are made with, and None will do to look at it.

    Raises BotImportError.
    """
    said = f"{setting}={path}"
    api = api or BotApi("http://127.0.0.1", "")
    with background.told(f"{said}: its import"):
        with importing(api, said):
            found = made_by(import_object(setting, path, BotImportError), said)
        bot = _bot(setting, path, found, api)
    return Bot(
        _waited_for(said, bot.handle, is_limited=True),
        bot.never_retry,
        on_error=bot.on_error and _waited_for(said, bot.on_error),
        on_timeout=bot.on_timeout and _waited_for(said, bot.on_timeout),
        session=bot.session,
    )


def _bot(setting: str, path: str, found: Any, api: BotApi) -> Bot:
    said = f"{setting}={path}"
    if isinstance(found, Bot):
        return found
    if takes_nothing(found) and inspect.iscoroutinefunction(found):
        return AsyncMain(found, api, said, partial(_bot, setting, path, api=api)).bot()
    bot = adapted(found, api, said)
    if bot is None:
        check_callable(setting, path, found, BotImportError)
        bot = Bot(_handler(said, found))
    return bot


def _handler(said: str, found: Callable[..., Any]) -> Callable[..., Any]:
    try:
        check_takes("handle", found, "ctx")
    except TypeError:
        raise BotImportError(f"{said} cannot be called with one argument; write it as `def handle(ctx)`.") from None
    return found


def _waited_for(said: str, function: Callable[..., Any], *, is_limited: bool = False) -> Callable[..., Any]:
    """An `async def` runs on this process's event loop, and its caller waits, so that its update is not settled before.

    is_limited: it is cancelled when UPDATE_TIMEOUT is over, on every pool.
    """
    if not is_async(function):
        return function
    if os_threads.in_greenlets():
        raise BotImportError(
            f"{said} is an `async def`, and greenlets cannot take turns with an event loop; "
            "start the worker with -P prefork or -P threads, or write a plain `def`."
        )
    if isinstance(function, AsyncHandler):
        function = function.started(said)
    return _Coroutine(function, is_limited=is_limited)


class _Coroutine:
    """A coroutine function as an ordinary one."""

    def __init__(self, function: Callable[..., Any], *, is_limited: bool) -> None:
        update_wrapper(self, function)
        self._function, self._is_limited = function, is_limited
        self._sessions = SessionPrefetch()

    def __call__(self, ctx: Context, *arguments: Any) -> Any:
        function = self._function
        self._sessions.before(ctx)
        if isinstance(function, AsyncHandler):
            function.before(ctx)
        limit_s = ctx.deadline_s - time.monotonic() if self._is_limited and ctx.deadline_s is not None else None
        try:
            return event_loop().run(awaited(function, ctx, *arguments), limit_s)
        except OverdueError:
            raise UpdateTimeoutError("the handler took longer than UPDATE_TIMEOUT and was cancelled") from None
        finally:
            self._sessions.after(ctx)


def waits_in_coroutines(bot: Bot) -> bool:
    """Whether all that a bot of `load_bot` does is done by coroutines: it needs no thread for each update."""
    return all(isinstance(each, _Coroutine) for each in (bot.handle, bot.on_error, bot.on_timeout) if each is not None)


def takes_nothing(found: Any) -> bool:
    """Whether it is a function without parameters."""
    return inspect.isfunction(found) and not inspect.signature(found).parameters


def made_by(found: Any, said: str) -> Any:
    """What a plain function without parameters gives; anything else is given back as it is. Raises BotImportError."""
    if not takes_nothing(found) or inspect.iscoroutinefunction(found):
        return found
    try:
        made = found()
    except PollingRefused as started:
        return started.bot
    except Exception as error:
        raise BotImportError(
            f"{said}() failed with {type(error).__name__}; mend it (the traceback above shows where)."
        ) from error
    if made is None:
        raise BotImportError(f"{said}() gave nothing: let it return the bot, or write a handler as `def handle(ctx)`.")
    return made
