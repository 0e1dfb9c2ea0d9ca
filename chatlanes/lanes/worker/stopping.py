"""Whether this worker was told to stop. Its forked children know it, too: they share the memory that says so."""

from __future__ import annotations

import mmap
from typing import Any

from celery import signals
from celery.worker import state

_shared: mmap.mmap | None = None


def share_with_children() -> None:
    """In the worker's main process, before its pool forks."""
    global _shared
    _shared = mmap.mmap(-1, 1)
    signals.worker_shutting_down.connect(_tell)


def is_stopping() -> bool:
    return (_shared is not None and _shared[0] != 0) or exit_code() is not None


def exit_code() -> int | None:
    """What Celery was asked to end with, which may be 0. None: nobody has asked."""
    for asked in (state.should_terminate, state.should_stop):
        if asked is not None and asked is not False:
            return int(asked)
    return None


def _tell(**_: Any) -> None:
    if _shared is not None:
        _shared[0] = 1
