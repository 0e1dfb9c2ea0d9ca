"""A bot: the handler of its updates, and hooks for updates that fail.

Guarantees that a bot with wrong arguments is refused when it is created, with one sentence, so that no worker starts
with it.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chatlanes.bot.context import Context, handling
from chatlanes.bot.session import OURS, KeyFunction
from chatlanes.bot.timers import is_timer
from chatlanes.settings.imports import check_takes

Handler = Callable[[Context], Any]
OnError = Callable[[Context, Exception], Any]

#: The top-level packages of frameworks that have an adapter.
FRAMEWORKS = frozenset({"telebot", "aiogram", "telegram"})


class UpdateTimeoutError(Exception):
    """The handler took longer than UPDATE_TIMEOUT.

    The attempt counts as failed: `on_error` gets this error, whose cause shows where the handler was, and the update is
    retried or buried.
    """


class NoHandlerError(Exception):
    """A message that the bot had set itself cannot be run, because the bot has no function for it any more. It is
    buried.
    """


class BotStartError(Exception):
    """A start-up hook of the bot failed in this process. The update was not run; it waits."""


@dataclass(frozen=True)
class Bot:
    """A handler with its hooks and options: `BOT=mybot:bot` with `bot = Bot(handle, never_retry=(ValueError,))`.

    Args:
        handle: Called with a Context for each update; a function or a coroutine function. It may also be what BOT can
            name instead: a framework's object, a tuple that contains one, or a function without parameters that makes
            the bot. Such a bot runs only in a worker.
        never_retry: Exception classes after which another attempt is useless. The update is buried at once, and its
            lanes continue.
        on_error: `on_error(ctx, error)`, called once for each failed attempt. An exception in it is logged and changes
            nothing.
        on_timeout: `on_timeout(ctx)`, called once for each attempt that takes longer than UPDATE_TIMEOUT. An exception
            in it is logged and changes nothing.
        on_blocked: `on_blocked(ctx)`, called in the chat's lane when a broadcast or a call of the outbox finds that the
            user has blocked the bot or deleted the account. It may change `ctx.session`. An exception in it is logged
            and changes nothing.
        on_timer: `on_timer(ctx)`, called for each timer that `ctx.later` has set, when it is due. `ctx.timer` is the
            timer; everything else is as in `handle`.
        on_stop: `on_stop(ctx)`, called instead of `handle` for an update that has stopped the run before it (CONTROL),
            such as `/stop`. Everything is as in `handle`.
        on_limited: `on_limited(ctx)`, called instead of `handle` for the first update over USER_RATE, if USER_RATE_OVER
            is `answer`. Everything is as in `handle`.
        session: The owner of `ctx.session`: `"chat"`, `"user"`, `"chat+user"`, `"topic"`, or a function from an update
            to a key or None (no session).

    Raises:
        TypeError: An argument cannot work, such as a handler that takes no argument.
    """

    handle: Any
    never_retry: tuple[type[Exception], ...] = ()
    on_error: OnError | None = None
    on_timeout: Handler | None = None
    session: str | KeyFunction = "chat"
    on_blocked: Handler | None = None
    on_timer: Handler | None = None
    on_stop: Handler | None = None
    on_limited: Handler | None = None

    def __post_init__(self) -> None:
        if not is_made_in_a_worker(self.handle):
            check_takes("handle", self.handle, "ctx")
        if not isinstance(self.never_retry, tuple) or not all(
            isinstance(each, type) and issubclass(each, Exception) for each in self.never_retry
        ):
            raise TypeError(f"never_retry={self.never_retry!r}: write a tuple of exception classes, as (ValueError,)")
        if self.on_error is not None:
            check_takes("on_error", self.on_error, "ctx", "error")
        for name in ("on_timeout", "on_blocked", "on_timer", "on_stop", "on_limited"):
            if (hook := getattr(self, name)) is not None:
                check_takes(name, hook, "ctx")
        if not isinstance(self.session, str):
            check_takes("session", self.session, "update")
        elif self.session not in OURS:
            raise TypeError(f"session={self.session!r}: write {', '.join(map(repr, OURS))}, or a function")

    def __call__(self, ctx: Context) -> Any:
        with handling(ctx):
            return self._function_for(ctx)(ctx)

    def _function_for(self, ctx: Context) -> Handler:
        """The handler for an update of Telegram; for a message that the bot has set itself, the function of its kind.
        Raises NoHandlerError.
        """
        if not is_timer(ctx.update):
            handle: Handler = self.handle
            return handle
        if self.on_timer is None:
            raise NoHandlerError(
                f"the timer {ctx.timer.name!r} is due, but the bot has no on_timer: write Bot(…, on_timer=…), and "
                "replay it"
            )
        return self.on_timer


def is_made_in_a_worker(handle: Any) -> bool:
    """True for a framework's object, and for a function that makes a bot: the loader makes a handler from it."""
    parts = handle if isinstance(handle, tuple) else (handle,)
    packages = {kind.__module__.partition(".")[0] for part in parts for kind in type(part).__mro__}
    return not packages.isdisjoint(FRAMEWORKS) or takes_nothing(handle)


def takes_nothing(found: Any) -> bool:
    """True for a function without parameters."""
    return inspect.isfunction(found) and not inspect.signature(found).parameters
