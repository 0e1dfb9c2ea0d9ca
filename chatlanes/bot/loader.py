"""Loads the bot that BOT names: a handler, a framework's object, or a factory or `main` that creates one.

Returns a Bot, or raises BotImportError with one sentence that says what to do. A plain factory is called once, as part
of the import. Nothing polls, and the handler is not called.
"""

import asyncio
import atexit
import inspect
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from functools import partial, update_wrapper
from typing import Any

from chatlanes.bot.adapters import adapted, importing
from chatlanes.bot.adapters.startup import background
from chatlanes.bot.adapters.startup.async_handler import AsyncHandler, is_async
from chatlanes.bot.adapters.startup.async_main import AsyncMain
from chatlanes.bot.adapters.startup.program import command_line, run_file, until_polling
from chatlanes.bot.async_context import SessionPrefetch, awaited
from chatlanes.bot.bot import Bot, UpdateTimeoutError, check_takes, is_made_in_a_worker, takes_nothing
from chatlanes.bot.context import Context
from chatlanes.bot.event_loop import OverdueError, event_loop
from chatlanes.bot.schedule import Schedule, import_schedules
from chatlanes.lanes.errors import Interrupted
from chatlanes.lanes.runtime import os_threads
from chatlanes.settings.imports import BotImportError, check_callable, impatient, import_object
from chatlanes.telegram.client import BotApi


def load_bot(path: str, setting: str = "BOT", api: BotApi | None = None, arguments: str = "") -> Bot:
    """The bot at `module:attribute`, made from the Bot, handler or framework object there, or the bot that a script
    (`mybot.py`) polls with. Raises BotImportError.

    Each `async def` is wrapped as a plain function. `setting` is the name used in errors. A framework's calls are made
    with `api`; None is enough to check that the bot can be loaded. `arguments`: the command line of the bot's code.
    """
    label = f"{setting}={path}"
    api = api or BotApi("http://127.0.0.1", "")
    with background.watched(f"{label}: its import"), command_line(label, arguments), importing(api, label):
        is_script = path.endswith(".py")
        found = run_file(setting, path) if is_script else made_by(import_object(setting, path, BotImportError), label)
        bot = _bot(setting, path, found, api)
    handle, on_timer = bot.handle, bot.on_timer
    if isinstance(handle, AsyncHandler):
        handle = handle.started(label)
        on_timer = on_timer and handle.beside(on_timer)
    return Bot(
        _as_plain(label, handle, is_limited=True),
        bot.never_retry,
        on_error=bot.on_error and _as_plain(label, bot.on_error),
        on_timeout=bot.on_timeout and _as_plain(label, bot.on_timeout),
        session=bot.session,
        on_timer=on_timer and _as_plain(label, on_timer, is_limited=True),
        on_blocked=bot.on_blocked and _as_plain(label, bot.on_blocked),
    )


def load_schedules(path: str, setting: str, bot: Bot) -> dict[str, Schedule]:
    """The schedules at `module:attribute`, by their names, of a bot from `load_bot`. Raises ImportPathError.

    Each `async def` is wrapped as a plain function, which runs when the bot has started.
    """
    schedules, handle = {}, bot.handle.function if isinstance(bot.handle, _Coroutine) else None
    for each in import_schedules(path, setting):
        function = handle.beside(each.function) if isinstance(handle, AsyncHandler) else each.function
        plain = _as_plain(f"{setting}={path}: {each.name}", function, is_limited=True)
        schedules[each.name] = replace(each, function=plain)
    return schedules


def _bot(setting: str, path: str, found: Any, api: BotApi) -> Bot:
    label = f"{setting}={path}"
    if isinstance(found, Bot):
        return _completed(found, partial(_bot, setting, path, api=api), label)
    if inspect.iscoroutine(found):
        atexit.register(_close_unused, found)
        return AsyncMain(lambda: found, api, f"{label}: {found.__name__}", partial(_bot, setting, path, api=api)).bot()
    if takes_nothing(found) and inspect.iscoroutinefunction(found):
        return AsyncMain(found, api, label, partial(_bot, setting, path, api=api)).bot()
    bot = adapted(found, api, label)
    if bot is None:
        check_callable(setting, path, found, BotImportError)
        bot = Bot(_handler(label, found))
    return bot


def _close_unused(main: Coroutine[Any, Any, Any]) -> None:
    """It runs in the children of prefork. Python warns of a coroutine that was not awaited in this process."""
    if inspect.getcoroutinestate(main) == inspect.CORO_CREATED:
        main.close()


def _completed(bot: Bot, bot_of: Callable[[Any], Bot], label: str) -> Bot:
    """The bot, with a handler if it names another object: the handler and the options of that object's own bot."""
    if not is_made_in_a_worker(bot.handle):
        return bot
    made = bot_of(made_by(bot.handle, label))
    return replace(
        bot,
        handle=made.handle,
        never_retry=(*bot.never_retry, *made.never_retry),
        on_error=bot.on_error or made.on_error,
        on_timeout=bot.on_timeout or made.on_timeout,
        session=made.session if bot.session == "chat" else bot.session,
        on_timer=bot.on_timer or made.on_timer,
    )


def _handler(label: str, found: Callable[..., Any]) -> Callable[..., Any]:
    if isinstance(found, type):
        raise BotImportError(f"{label} is a class; name an object of it, or write a handler as `def handle(ctx)`.")
    try:
        check_takes("handle", found, "ctx")
    except TypeError:
        raise BotImportError(f"{label} cannot be called with one argument; write it as `def handle(ctx)`.") from None
    return found


def _as_plain(label: str, function: Callable[..., Any], *, is_limited: bool = False) -> Callable[..., Any]:
    """Wrap an `async def`: it runs on this process's event loop, and the caller waits until it ends.

    is_limited: it is cancelled when UPDATE_TIMEOUT is over or a newer update interrupts the run, in every pool.
    """
    if not is_async(function):
        return function
    if os_threads.in_greenlets():
        raise BotImportError(
            f"{label} is an `async def`, and an event loop does not run beside greenlets; "
            "start the worker with -P prefork or -P threads, or write a plain `def`."
        )
    return _Coroutine(function, is_limited=is_limited)


class _Coroutine:
    """A coroutine function, wrapped as a plain function."""

    def __init__(self, function: Callable[..., Any], *, is_limited: bool) -> None:
        update_wrapper(self, function)
        self.function, self._is_limited = function, is_limited
        self._sessions = SessionPrefetch()

    def __call__(self, ctx: Context, *arguments: Any) -> Any:
        function = self.function
        self._sessions.before(ctx)
        if ctx.interrupts is not None:
            ctx.interrupts.read_ahead()
        if isinstance(function, AsyncHandler):
            function.before(ctx)
        limit_s = ctx.deadline_s - time.monotonic() if self._is_limited and ctx.deadline_s is not None else None
        on_interrupt = ctx.interrupts.on_interrupt if self._is_limited and ctx.interrupts else None
        coroutine = ctx.__dict__["coroutine"] = awaited(function, ctx, *arguments)
        try:
            return event_loop().run(coroutine, limit_s, on_interrupt)
        except OverdueError:
            raise UpdateTimeoutError("the handler took longer than UPDATE_TIMEOUT and was cancelled") from None
        except asyncio.CancelledError:
            if ctx.interrupted:
                raise Interrupted(f"a newer update has ended the run of {ctx!r}") from None
            raise
        finally:
            self._sessions.after(ctx)


def is_fully_async(bot: Bot, schedules: Iterable[Schedule] = ()) -> bool:
    """True if the handler, hooks and schedules of a bot, as loaded here, are all coroutines, so that no update needs a
    thread.
    """
    functions = (bot.handle, bot.on_error, bot.on_timeout, bot.on_timer, *(schedule.function for schedule in schedules))
    return all(isinstance(each, _Coroutine) for each in functions if each is not None)


def made_by(found: Any, label: str) -> Any:
    """Call a plain function without parameters and return its result, or what it polls with; return anything else as
    it is. Raises BotImportError.
    """
    if not takes_nothing(found) or inspect.iscoroutinefunction(found):
        return found
    try:
        with impatient(f"{label}()"):
            made = until_polling(found)
    except Exception as error:
        raise BotImportError(
            f"{label}() failed with {type(error).__name__}; fix it (the traceback above shows where)."
        ) from error
    if made is None:
        raise BotImportError(f"{label}() returned None: return the bot, or write a handler as `def handle(ctx)`.")
    return made
