"""Warns of threads and tasks that a bot starts besides its handlers: they run in no worker process, or in all of them.

Changes nothing about them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

log = logging.getLogger(__name__)

#: What ours start whenever there is work: threads by their names, coroutines by theirs.
_OUR_THREADS = ("alarm", "asyncio_", "bot", "event loop", "ThreadPoolExecutor")
_OUR_TASKS = ("Awaited.", "AsyncLifetime.", "AsyncMain.")


@contextmanager
def told(who: str) -> Iterator[None]:
    """Around an import or a start-up: of what has come to run meanwhile, and goes on."""
    threads, tasks = _threads(), _tasks()
    yield
    _log(who, "thread", [each.name for each in _threads() - threads], _OUR_THREADS)
    coroutines = (each.get_coro() for each in _tasks() - tasks)
    _log(who, "task", [getattr(each, "__qualname__", str(each)) for each in coroutines], _OUR_TASKS)


def _threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def _tasks() -> set[asyncio.Task[Any]]:
    """None outside of an event loop."""
    try:
        return asyncio.all_tasks()
    except RuntimeError:
        return set()


def _log(who: str, what: str, names: list[str], ours: tuple[str, ...]) -> None:
    found = sorted(name for name in names if not name.startswith(ours))
    if found:
        log.warning(
            "%s started %d %s%s (%s): each process of each worker would have its own, but what an import starts is "
            "lost in the children of -P prefork. Run what is there once, in a program of its own",
            who,
            len(found),
            what,
            "s" * (len(found) > 1),
            ", ".join(found),
        )
