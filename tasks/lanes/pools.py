"""What is changed in a pool of Celery's before it starts: the same promises, with less work for each task."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tasks.lanes.forks import use_lean_pool
from tasks.lanes.settler import Settler
from tasks.lanes.solo import use_lean_solo
from tasks.lanes.threads import use_lean_threads


def make_lean(worker: Any, settler: Settler) -> bool:
    """Changes pools of Celery's own only. Whether it claims each message itself (books.py)."""
    pool = worker.pool
    use_lean_solo(pool)
    use_lean_threads(pool)
    if type(pool).__module__ == "celery.concurrency.gevent":  # importing ours imports gevent
        import_module("tasks.lanes.greenlets").use_lean_greenlets(pool)
    return use_lean_pool(worker, settler)
