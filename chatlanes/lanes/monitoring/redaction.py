"""Keeps message bodies out of Celery's log lines.

Celery logs bodies that it cannot decode, and arguments of each task at level DEBUG. Guarantees that only the size of a
body is logged: whoever may read the message finds it in the dead letters.
"""

from __future__ import annotations

import logging
from functools import wraps
from typing import Any

from celery.worker.consumer import consumer


@wraps(consumer.dump_body)
def _size_of(message: Any, body: Any) -> str:
    """Replaces Celery's `dump_body`."""
    shown = body if body is not None else message.body
    size = f" of {len(shown):,}" if isinstance(shown, str | bytes) else ""
    return f"(a body{size}, not shown)"


def _without_arguments(record: logging.LogRecord) -> bool:
    """For 'TaskPool: Apply %s (args:%s kwargs:%s)': keeps the function, removes its arguments."""
    if isinstance(record.args, tuple) and len(record.args) == 3:
        record.args = (record.args[0], "not shown", "not shown")
    return True


def show_no_bodies() -> None:
    """May be called repeatedly."""
    consumer.dump_body = _size_of
    pool = logging.getLogger("celery.pool")
    if _without_arguments not in pool.filters:
        pool.addFilter(_without_arguments)
