"""Lets coroutine bots use SQLite connections that they open when their module is imported.

The import runs on another thread than the handlers, which all run on the event loop's thread, so only one thread uses
the connection at a time. A bot without a coroutine framework keeps Python's thread check, because its handlers may run
on several threads.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

#: Frameworks whose handlers are coroutines. A module imports its framework before it opens a connection.
_COROUTINE_FRAMEWORKS = ("aiogram", "telegram.ext", "telebot.async_telebot")
#: The position of `check_same_thread` among the arguments of sqlite3.connect.
_CHECK_AT = 4

_importing: ContextVar[bool] = ContextVar("importing a bot that may open a database", default=False)


@contextmanager
def usable_in_coroutines() -> Iterator[None]:
    """Wraps the import of a bot."""
    own, token = sqlite3.connect, _importing.set(True)
    sqlite3.connect = sqlite3.dbapi2.connect = _connecting(own)
    try:
        yield
    finally:
        sqlite3.connect = sqlite3.dbapi2.connect = own
        _importing.reset(token)


def _connecting(connect: Callable[..., sqlite3.Connection]) -> Callable[..., Any]:
    @wraps(connect)
    def connect_for_coroutines(*arguments: Any, **named: Any) -> sqlite3.Connection:
        # The bot may have imported this function by name, and so may call it after its import too.
        is_async = any(name in sys.modules for name in _COROUTINE_FRAMEWORKS)
        if is_async and _importing.get() and len(arguments) <= _CHECK_AT:
            named.setdefault("check_same_thread", False)
        return connect(*arguments, **named)

    return connect_for_coroutines
