"""Tunes Python's garbage collector for a worker.

Objects that exist at startup are frozen, so the collector skips them and forked children share their memory. The first
threshold is raised to the number of objects that the messages in flight need: collecting more often took a sixth of a
worker's time.
"""

from __future__ import annotations

import gc
from typing import Any

from celery_lanes.transport.fetch import MAX_PER_FETCH

#: Tracked objects per message, from its delivery to its end: about 80, and those of the handler.
OBJECTS = 100


def apply(worker: Any) -> None:
    """Called before the pool starts, so that its children inherit the settings. Does nothing if the process is not only
    a worker (celery.contrib.testing): its objects would stay indefinitely.
    """
    if not worker.app.use_fast_trace_task:
        return
    # A collection writes to every object it visits, and children stop sharing memory that is written to.
    gc.freeze()
    newest, *others = gc.get_threshold()
    if newest:  # 0: the collector is turned off
        gc.set_threshold(max(newest, OBJECTS * _most_in_flight(worker)), *others)


def _most_in_flight(worker: Any) -> int:
    """The number of running and prefetched messages. One fetch leases at most MAX_PER_FETCH of the latter."""
    slots = worker.pool.limit or 1
    spare = 0 if worker.pool.is_green else worker.prefetch_multiplier - 1
    return int(slots + min(slots * spare, MAX_PER_FETCH))
