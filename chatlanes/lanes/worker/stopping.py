"""A flag that is set when this worker begins to stop. It is in memory that forked children share."""

from __future__ import annotations

import mmap
from typing import Any

from celery import signals
from celery.worker import state

_shared: mmap.mmap | None = None


def share_with_children() -> None:
    """Called in the worker's main process before its pool forks."""
    global _shared
    _shared = mmap.mmap(-1, 1)
    signals.worker_shutting_down.connect(_set)


def is_stopping() -> bool:
    return (_shared is not None and _shared[0] != 0) or exit_code() is not None


def exit_code() -> int | None:
    """The exit code with which Celery was asked to exit, which may be 0; None: it was not asked to exit."""
    for asked in (state.should_terminate, state.should_stop):
        if asked is not None and asked is not False:
            return int(asked)
    return None


def _set(**_: Any) -> None:
    if _shared is not None:
        _shared[0] = 1
