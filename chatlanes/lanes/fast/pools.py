"""What is changed in a pool of Celery's before it starts: the same promises, with less work for each task."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from chatlanes.lanes.fast.prefork_pool import use_lean_pool
from chatlanes.lanes.fast.thread_pool import use_lean_threads
from chatlanes.lanes.leases.in_flight import InFlight


def make_lean(worker: Any, in_flight: InFlight) -> bool:
    """Changes pools of Celery's own only. Whether it claims each message itself (books.py)."""
    pool = worker.pool
    use_lean_threads(pool)
    if type(pool).__module__ == "celery.concurrency.gevent":  # importing ours imports gevent
        import_module("chatlanes.lanes.fast.gevent_pool").use_lean_greenlets(pool)
    return use_lean_pool(worker, in_flight)
