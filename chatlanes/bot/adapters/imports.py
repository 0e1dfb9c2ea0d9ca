"""Changes to the frameworks and to SQLite while a bot is imported or its `main` runs, before it is adapted.

A bot that is created there calls BOT_API_URL, unless it sets another address itself, and an application of
python-telegram-bot has our job queue. A framework that the bot never imports costs nothing.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from chatlanes.bot.adapters.errors import PUBLIC_API, having
from chatlanes.telegram.client import BotApi

Change = Callable[[ModuleType], None]

#: Frameworks whose handlers are coroutines. A module imports its framework before it opens a connection.
_COROUTINE_FRAMEWORKS = ("aiogram", "telegram.ext", "telebot.async_telebot")
#: The position of `check_same_thread` among the arguments of sqlite3.connect.
_CHECK_AT = 4
#: Imported by name, as all adapters are: only a process that has the framework can import it.
_JOB_QUEUE = "chatlanes.bot.adapters.ptb.job_queue"

_wanted: dict[str, list[Change]] = {}
_here: ContextVar[BotApi | None] = ContextVar("server of the bots that are made here", default=None)
importing_bot: ContextVar[bool] = ContextVar("importing a bot", default=False)
#: telebot stores the address in its modules, for all bots: that of the bot whose module is imported next, and those
#: that no bot has set.
_telebots: list[BotApi] = []
_unset: set[str | None] = {None, "https://api.telegram.org/bot{0}/{1}"}


def on_import(name: str, change: Change) -> None:
    """Call `change` once with the module of this name."""
    changes = _wanted.setdefault(name, [])
    if change in changes:
        return
    changes.append(change)
    if name in sys.modules:
        change(sys.modules[name])
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Finder(MetaPathFinder):
    """Finds modules with the other finders, and adds the changes to their loading."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in _wanted:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_change(module: ModuleType) -> None:
                load(module)
                for change in _wanted[name]:
                    change(module)

            spec.loader.exec_module = load_and_change  # type: ignore[method-assign]
        return spec


_finder = _Finder()


@contextmanager
def bots_made_here(api: BotApi) -> Iterator[None]:
    """Wraps code that creates a bot."""
    on_import("aiogram.client.session.base", _change_aiogram)
    on_import("telegram._bot", _change_ptb)
    on_import("telegram.ext._application", _change_job_queue)
    with having(_here, api):
        yield


def _change_aiogram(module: ModuleType) -> None:
    def point(session: Any, api: BotApi) -> None:
        if session.api is module.PRODUCTION:
            session.api = module.TelegramAPIServer.from_base(api.url)

    _after_init(module.BaseSession, point)


def _change_ptb(module: ModuleType) -> None:
    def point(bot: Any, api: BotApi) -> None:
        for name in ("_base_url", "_base_file_url"):
            address = getattr(bot, name)
            if address.startswith(f"{PUBLIC_API}/"):
                with bot._unfrozen():
                    setattr(bot, name, api.url + address.removeprefix(PUBLIC_API))

    _after_init(module.Bot, point)


def _after_init(kind: type, point: Callable[[Any, BotApi], None]) -> None:
    own: Callable[..., None] = kind.__init__  # type: ignore[misc]

    @wraps(own)
    def init(made: Any, *arguments: Any, **named: Any) -> None:
        own(made, *arguments, **named)
        if (api := _here.get()) is not None:
            point(made, api)

    kind.__init__ = init  # type: ignore[misc]


def _change_job_queue(module: ModuleType) -> None:
    """Without APScheduler an application would have none, and with it the jobs would exist in one process only."""
    own = module.Application.job_queue

    def job_queue(application: Any) -> Any:
        return own.fget(application) if _here.get() is None else import_module(_JOB_QUEUE).queue_of(application)

    module.Application.job_queue = property(job_queue, doc=own.__doc__)


def point_telebot(api: BotApi) -> None:
    """Set the server for the bot whose module is imported next. An address that the bot sets itself is kept."""
    _telebots[:] = [api]
    for name in ("telebot.apihelper", "telebot.asyncio_helper"):
        on_import(name, _point)
        if name in sys.modules:
            _point(sys.modules[name])


def is_unset(address: str | None) -> bool:
    """True if no bot has set this address of telebot."""
    return address in _unset


def _point(module: ModuleType) -> None:
    for name, path in (("API_URL", "/bot{0}/{1}"), ("FILE_URL", "/file/bot{0}/{1}")):
        if is_unset(getattr(module, name)):
            setattr(module, name, _telebots[0].url + path)
            _unset.add(_telebots[0].url + path)


@contextmanager
def sqlite_in_coroutines() -> Iterator[None]:
    """Wraps the import of a bot, which runs on another thread than its handlers. Those of a coroutine framework all run
    on the event loop's thread, so only one thread uses a SQLite connection at a time. Another bot keeps Python's thread
    check, because its handlers may run on several threads.
    """
    own = sqlite3.connect
    sqlite3.connect = sqlite3.dbapi2.connect = _connecting(own)
    try:
        yield
    finally:
        sqlite3.connect = sqlite3.dbapi2.connect = own


def _connecting(connect: Callable[..., sqlite3.Connection]) -> Callable[..., Any]:
    @wraps(connect)
    def connect_for_coroutines(*arguments: Any, **named: Any) -> sqlite3.Connection:
        # The bot may have imported this function by name, and so may call it after its import too.
        is_async = any(name in sys.modules for name in _COROUTINE_FRAMEWORKS)
        if is_async and importing_bot.get() and len(arguments) <= _CHECK_AT:
            named.setdefault("check_same_thread", False)
        return connect(*arguments, **named)

    return connect_for_coroutines
