"""Warns of threads and tasks that a bot starts outside its handlers, because each worker process would run its own.

The threads and tasks themselves are not changed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

log = logging.getLogger(__name__)

#: Our own threads and coroutines, by the beginning of their names.
_OUR_THREADS = ("alarm", "asyncio_", "blocking call", "bot", "event loop", "ThreadPoolExecutor")
_OUR_TASKS = ("Awaited.", "AsyncLifetime.", "AsyncMain.")


@contextmanager
def watched(step: str) -> Iterator[None]:
    """Wraps an import or a start-up; warns of threads and tasks that it started and that still run."""
    threads, tasks = _threads(), _tasks()
    yield
    _log(step, "thread", [each.name for each in _threads() - threads], _OUR_THREADS)
    coroutines = (each.get_coro() for each in _tasks() - tasks)
    _log(step, "task", [getattr(each, "__qualname__", str(each)) for each in coroutines], _OUR_TASKS)


def _threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def _tasks() -> set[asyncio.Task[Any]]:
    """The tasks of the running event loop; empty without one."""
    try:
        return asyncio.all_tasks()
    except RuntimeError:
        return set()


def _log(step: str, what: str, names: list[str], ours: tuple[str, ...]) -> None:
    found = sorted(name for name in names if not name.startswith(ours))
    if found:
        log.warning(
            "%s started %d %s%s (%s): every worker process would have its own, and those started by an import do not "
            "run in the children of -P prefork. Run background work once, in a separate program",
            step,
            len(found),
            what,
            "s" * (len(found) > 1),
            ", ".join(found),
        )
