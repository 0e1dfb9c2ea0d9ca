"""What log lines tell of a message: its id, by Celery's own convention, and never its body.

Celery would show bodies where it cannot make sense of one, and for each task at level DEBUG. Promises that a body is
told by its size only: who may read the message finds it in the dead letters.
"""

from __future__ import annotations

import logging
from typing import Any

from celery.worker.consumer import consumer


def _size_of(message: Any, body: Any) -> str:
    """In the place of Celery's `dump_body`."""
    shown = body if body is not None else message.body
    size = f" of {len(shown):,}" if isinstance(shown, str | bytes) else ""
    return f"(a body{size}, not shown)"


def _without_arguments(record: logging.LogRecord) -> bool:
    """'TaskPool: Apply %s (args:%s kwargs:%s)': what it applies is said, what to is not."""
    if isinstance(record.args, tuple) and len(record.args) == 3:
        record.args = (record.args[0], "not shown", "not shown")
    return True


def show_no_bodies() -> None:
    """Once or often."""
    consumer.dump_body = _size_of
    pool = logging.getLogger("celery.pool")
    if _without_arguments not in pool.filters:
        pool.addFilter(_without_arguments)
