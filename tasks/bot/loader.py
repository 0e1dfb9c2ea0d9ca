"""Finds the bot that BOT names.

Promises a function of one context, or one sentence that says what to do. Does not call it.
"""

import asyncio
import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from tasks.bot.context import Context
from tasks.imports import ImportPathError, import_callable

Handler = Callable[[Context], Any]


class BotImportError(ImportPathError):
    """BOT names nothing that can handle updates."""


def load_bot(path: str) -> Handler:
    """The handler at `module:attribute`; an `async def` comes wrapped. Raises BotImportError."""
    handler = import_callable("BOT", path, BotImportError)
    _check_takes_a_context(path, handler)
    return _waited_for(path, handler) if _is_async(handler) else handler


def _check_takes_a_context(path: str, handler: Handler) -> None:
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):  # written in C: only calling it will tell
        return
    try:
        signature.bind(object())
    except TypeError:
        raise BotImportError(f"BOT={path} cannot be called with one argument; write it as `def handle(ctx)`.") from None


def _is_async(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def _waited_for(path: str, handler: Handler) -> Handler:
    """Runs it to its end in an event loop of its own, so that its update is not settled before."""
    if _in_greenlets():
        raise BotImportError(
            f"BOT={path} is an `async def`, and greenlets cannot run two event loops at once; "
            "start the worker with -P prefork or -P threads, or write a plain `def`."
        )

    @wraps(handler)
    def handle(ctx: Context) -> Any:
        return asyncio.run(handler(ctx))

    return handle


def _in_greenlets() -> bool:
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))
