"""Loads the bot that BOT names: a handler, a framework's object, or a factory or `main` that creates one.

Returns a Bot, or raises ImportPathError with one sentence that says what to do. A plain factory is called once, as part
of the import. Nothing polls, and the handler is not called.
"""

import asyncio
import atexit
import inspect
import logging
import sys
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from celery_lanes.runtime import threads
from chatlanes.bot.adapters import adapted, importing
from chatlanes.bot.adapters.errors import PermanentError
from chatlanes.bot.adapters.imports import bots_made_here
from chatlanes.bot.adapters.polling import Polling, PollingRefused, command_line, expected, run_file, until_polling
from chatlanes.bot.bot import Bot, is_made_in_a_worker, takes_nothing
from chatlanes.bot.context import Context
from chatlanes.bot.coroutines import AsyncHandler, PlainCoroutine, Steps, watched
from chatlanes.bot.event_loop import is_async
from chatlanes.bot.schedules import Schedule, import_schedules
from chatlanes.settings.imports import ImportPathError, check_callable, check_takes, impatient, import_object
from chatlanes.settings.reading import export
from chatlanes.telegram.client import BotApi

log = logging.getLogger(__name__)

#: How long the function may clean up when its process ends, in seconds, after its shutdown hooks.
CLEANUP_S = 5.0


def load_bot(path: str, setting: str = "BOT", api: BotApi | None = None, arguments: str = "") -> Bot:
    """The bot at `module:attribute`, made from the Bot, handler or framework object there, or the bot that a script
    (`mybot.py`) polls with. Raises ImportPathError.

    The variables of `.env` are in the environment when its code runs. Each `async def` is wrapped as a plain function.
    `setting` is the name used in errors. A framework's calls are made with `api`; None is enough to check that the bot
    can be loaded. `arguments`: the command line of the bot's code.
    """
    export()
    label = f"{setting}={path}"
    api = api or BotApi("http://127.0.0.1", "")
    with watched(f"{label}: its import"), command_line(label, arguments), importing(api, label):
        is_script = path.endswith(".py")
        found = run_file(setting, path) if is_script else made_by(import_object(setting, path), label)
        bot = _bot(setting, path, found, api)
    handle = bot.handle
    others: dict[str, Any] = {name: getattr(bot, name) for name in ("on_timer", "on_stop", "on_limited")}
    if isinstance(handle, AsyncHandler):
        handle = handle.started(label)
        others = {name: each and handle.beside(each) for name, each in others.items()}
    hooks: dict[str, Any] = {name: getattr(bot, name) for name in ("on_error", "on_timeout", "on_blocked")}
    hooks = {name: hook and _as_plain(label, hook) for name, hook in hooks.items()}
    others = {name: each and _as_plain(label, each, is_limited=True) for name, each in others.items()}
    return replace(
        bot,
        handle=_as_plain(label, handle, is_limited=True),
        **others,
        **hooks,
    )


def load_schedules(path: str, setting: str, bot: Bot) -> dict[str, Schedule]:
    """The schedules at `module:attribute`, by their names, of a bot from `load_bot`. Raises ImportPathError.

    Each `async def` is wrapped as a plain function, which runs when the bot has started.
    """
    schedules, handle = {}, bot.handle.function if isinstance(bot.handle, PlainCoroutine) else None
    for each in import_schedules(path, setting):
        function = handle.beside(each.function) if isinstance(handle, AsyncHandler) else each.function
        plain = _as_plain(f"{setting}={path}: {each.name}", function, is_limited=True)
        schedules[each.name] = replace(each, function=plain)
    return schedules


def _bot(setting: str, path: str, found: Any, api: BotApi) -> Bot:
    label, bot_of = f"{setting}={path}", partial(_bot, setting, path, api=api)
    if isinstance(found, Bot):
        return _completed(found, bot_of, label)
    if inspect.iscoroutine(found):
        atexit.register(_close_unused, found)
        return AsyncMain(lambda: found, api, f"{label}: {found.__name__}", bot_of).bot()
    if takes_nothing(found) and inspect.iscoroutinefunction(found):
        return AsyncMain(found, api, label, bot_of).bot()
    bot = adapted(found, api, label)
    if bot is None:
        check_callable(setting, path, found)
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
        on_stop=bot.on_stop or made.on_stop,
        on_limited=bot.on_limited or made.on_limited,
    )


def _handler(label: str, found: Callable[..., Any]) -> Callable[..., Any]:
    if isinstance(found, type):
        raise ImportPathError(f"{label} is a class; name an object of it, or write a handler as `def handle(ctx)`.")
    try:
        check_takes("handle", found, "ctx")
    except TypeError:
        raise ImportPathError(f"{label} cannot be called with one argument; write it as `def handle(ctx)`.") from None
    return found


def _as_plain(label: str, function: Callable[..., Any], *, is_limited: bool = False) -> Callable[..., Any]:
    """An `async def` as a plain function (PlainCoroutine)."""
    if not is_async(function):
        return function
    if threads.in_greenlets():
        raise ImportPathError(
            f"{label} is an `async def`, and an event loop does not run beside greenlets; "
            "start the worker with -P prefork or -P threads, or write a plain `def`."
        )
    return PlainCoroutine(function, is_limited=is_limited)


def is_fully_async(bot: Bot, schedules: Iterable[Schedule] = ()) -> bool:
    """True if the handler, hooks and schedules of a bot, as loaded here, are all coroutines, so that no update needs a
    thread.
    """
    own = (bot.handle, bot.on_error, bot.on_timeout, bot.on_timer, bot.on_stop, bot.on_limited)
    functions = (*own, *(schedule.function for schedule in schedules))
    return all(isinstance(each, PlainCoroutine) for each in functions if each is not None)


def made_by(found: Any, label: str) -> Any:
    """Call a plain function without parameters and return its result, or what it polls with; return anything else as
    it is. Raises ImportPathError.
    """
    if not takes_nothing(found) or inspect.iscoroutinefunction(found):
        return found
    try:
        with impatient(f"{label}()"):
            made = until_polling(found)
    except Exception as error:
        raise ImportPathError(
            f"{label}() failed with {type(error).__name__}; fix it (the traceback above shows where)."
        ) from error
    if made is None:
        raise ImportPathError(f"{label}() returned None: return the bot, or write a handler as `def handle(ctx)`.")
    return made


class NotYetError(Exception):
    """The bot cannot start now, because Telegram is unavailable."""


class AsyncMain:
    """A bot's `async def` without parameters: a `main` that polls, or a factory.

    It runs once in each process that handles updates, on the event loop of its handlers. The bot is the object that it
    would poll with or that it returns; the polling call returns only when the process shuts down, so that the function
    can clean up. Nothing polls, and no webhook is set or deleted. `bot_of` makes a Bot from that object.
    """

    def __init__(
        self, function: Callable[[], Coroutine[Any, Any, Any]], api: BotApi, label: str, bot_of: Callable[[Any], Bot]
    ) -> None:
        self._function, self._api, self._label, self._bot_of = function, api, label, bot_of
        self._command_line = sys.argv
        self._task: asyncio.Task[Any] | None = None
        self._polling: Polling | None = None
        self._handler: AsyncHandler | None = None

    def bot(self) -> Bot:
        """The Bot for the worker, which exists before the function has run."""
        steps = Steps(self._start, self._stop, passing=(NotYetError,))
        return Bot(AsyncHandler(self._handle, self._before, steps), never_retry=(PermanentError,))

    async def _handle(self, ctx: Context) -> Any:
        assert self._handler  # noqa: S101  updates come after the start
        return await self._handler(ctx)

    def _before(self, ctx: Context) -> None:
        if self._handler:
            self._handler.before(ctx)

    async def _start(self) -> None:
        if self._handler is None:
            self._handler = self._checked(self._bot_of(await self._made()))
        if steps := self._handler.steps:
            try:
                await steps.start()
            except steps.passing as error:
                raise NotYetError(f"{type(error).__name__}: {error}") from error

    async def _stop(self) -> None:
        if self._handler and self._handler.steps:
            await self._handler.steps.stop()
        if self._polling and self._task:
            self._polling.end()
            await asyncio.wait([self._task], timeout=CLEANUP_S)
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled() and (error := self._task.exception()):
                log.warning("%s() failed after its polling call: %r", self._label, error)

    async def _made(self) -> Any:
        """The object that the function polls with or returns. Raises whatever it raises, and ImportPathError."""
        self._polling = Polling()
        self._task = asyncio.create_task(self._run(self._polling))
        own, sys.argv = sys.argv, self._command_line
        await asyncio.wait([self._task, self._polling.bot], return_when=asyncio.FIRST_COMPLETED)
        sys.argv = own
        if self._polling.bot.done():
            return self._polling.bot.result()
        made = self._task.result()
        if made is None:
            raise ImportPathError(f"{self._label}() returned None and did not poll: return the bot from it.")
        return made

    async def _run(self, polling: Polling) -> Any:
        try:
            with bots_made_here(self._api), expected(polling):
                return await self._function()
        except PollingRefused as started:
            return started.bot
        except SystemExit as error:  # it would end the event loop
            raise ImportPathError(f"{self._label}() ended with SystemExit({error}).") from error

    def _checked(self, bot: Bot) -> AsyncHandler:
        """The handler of the bot. Raises ImportPathError if the bot has settings that a worker must know before it
        starts.
        """
        if not is_async(bot.handle):
            raise ImportPathError(
                f"{self._label}() created a bot with plain `def` handlers: make it a plain `def` too."
            )
        is_own = all(issubclass(each, PermanentError) for each in bot.never_retry)
        if not is_own or bot.on_error or bot.on_timeout or bot.session != "chat":
            raise ImportPathError(
                f"{self._label}() created a bot with hooks, never_retry or a session setting (GLOBAL_USER is one): a "
                "worker must know them before it starts, so create this bot when its module is imported."
            )
        return bot.handle if isinstance(bot.handle, AsyncHandler) else AsyncHandler(bot.handle)
