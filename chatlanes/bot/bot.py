"""A bot: the handler of its updates, and its hooks for those that fail.

Guarantees that a bot which cannot work is refused when it is made, in one sentence, so that no worker starts with it.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chatlanes.bot.context import Context
from chatlanes.bot.current import handling
from chatlanes.bot.session.keys import OURS, KeyFunction

Handler = Callable[[Context], Any]
OnError = Callable[[Context, Exception], Any]


class UpdateTimeoutError(Exception):
    """The handler took longer than UPDATE_TIMEOUT."""


class BotStartError(Exception):
    """What the bot does at the start of a process has failed there: the update was not run, and waits."""


@dataclass(frozen=True)
class Bot:
    """`BOT=mybot:bot` with `bot = Bot(handle, never_retry=(ValueError,))`. Raises TypeError for what cannot work.

    never_retry: errors that no other attempt would mend; such an update is buried at once, and its lanes go on.
    on_error(ctx, error): called once for each failed attempt.
    on_timeout(ctx): called once for each attempt that takes longer than UPDATE_TIMEOUT.
    What these two raise is logged, and changes nothing.
    session: whose ctx.session is: "chat", "user", "chat+user", "topic", or a function from an update to a key or None.
    """

    handle: Handler
    never_retry: tuple[type[Exception], ...] = ()
    on_error: OnError | None = None
    on_timeout: Handler | None = None
    session: str | KeyFunction = "chat"

    def __post_init__(self) -> None:
        check_takes("handle", self.handle, "ctx")
        if not isinstance(self.never_retry, tuple) or not all(map(_is_error, self.never_retry)):
            raise TypeError(f"never_retry={self.never_retry!r}: write a tuple of exception classes, as (ValueError,)")
        if self.on_error is not None:
            check_takes("on_error", self.on_error, "ctx", "error")
        if self.on_timeout is not None:
            check_takes("on_timeout", self.on_timeout, "ctx")
        if not isinstance(self.session, str):
            check_takes("session", self.session, "update")
        elif self.session not in OURS:
            raise TypeError(f"session={self.session!r}: write {', '.join(map(repr, OURS))}, or a function")

    def __call__(self, ctx: Context) -> Any:
        with handling(ctx):
            return self.handle(ctx)


def check_takes(name: str, function: Any, *arguments: str) -> None:
    """Raises TypeError unless it is a function that takes these."""
    wanted = f"write a function, as `def {name}({', '.join(arguments)})`"
    if not callable(function):
        raise TypeError(f"{name}={function!r} cannot be called; {wanted}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C: only calling it will tell
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        number = "one argument" if len(arguments) == 1 else f"{len(arguments)} arguments"
        raise TypeError(f"{name} cannot be called with {number}; {wanted}") from None


def _is_error(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, Exception)
