"""SQLite connections that a bot of coroutines opens when its module is imported.

The import runs on another thread than the handlers, which all share the one of the event loop. Guarantees that such a
connection may be used there, as in the bot's own `asyncio.run`: only one thread uses it at a time. A bot without a
coroutine framework keeps Python's check, because its handlers may run on several threads.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

#: Whose handlers are coroutines. A module imports its framework before it opens anything.
_IN_COROUTINES = ("aiogram", "telegram.ext", "telebot.async_telebot")
#: The place of `check_same_thread` among the arguments of sqlite3.connect.
_CHECK_AT = 4

_importing: ContextVar[bool] = ContextVar("importing a bot that may open a database", default=False)


@contextmanager
def usable_in_coroutines() -> Iterator[None]:
    """Around the import of a bot."""
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
        # A module that imported this function by name still calls it after its import.
        if _importing.get() and len(arguments) <= _CHECK_AT and any(name in sys.modules for name in _IN_COROUTINES):
            named.setdefault("check_same_thread", False)
        return connect(*arguments, **named)

    return connect_for_coroutines
