"""Removes message bodies, and the traceback of a lost connection, from Celery's log.

Celery logs bodies that it cannot decode, and the arguments of each task at level DEBUG. Guarantees that only the size
of a body is logged; the message itself is in the dead letters.
"""

from __future__ import annotations

import logging
from functools import wraps
from typing import Any

from celery.worker.consumer import consumer
from celery.worker.pidbox import gPidbox
from kombu.log import get_logger

logger = get_logger(__name__)

_stock_loop = gPidbox.loop


def install() -> None:
    """May be called repeatedly."""
    consumer.dump_body = _describe_size
    gPidbox.loop = _loop
    pool = logging.getLogger("celery.pool")
    if _without_arguments not in pool.filters:
        pool.addFilter(_without_arguments)


@wraps(consumer.dump_body)
def _describe_size(message: Any, body: Any) -> str:
    """Replaces Celery's `dump_body`."""
    content = body if body is not None else message.body
    size = f" of {len(content):,}" if isinstance(content, str | bytes) else ""
    return f"(a body{size}, not shown)"


def _without_arguments(record: logging.LogRecord) -> bool:
    """For 'TaskPool: Apply %s (args:%s kwargs:%s)': keeps the function, hides its arguments."""
    if isinstance(record.args, tuple) and len(record.args) == 3:
        record.args = (record.args[0], "not shown", "not shown")
    return True


@wraps(_stock_loop)
def _loop(self: Any, consumer: Any) -> None:
    """Replaces the loop of Celery's remote control under gevent, which runs in a greenlet and ends with the error. A
    new one starts with the next connection. Catches only connection and channel errors.
    """
    try:
        _stock_loop(self, consumer)
    except (*consumer.connection_errors, *consumer.channel_errors) as error:
        logger.warning("lanes: remote control has lost its connection and waits for the next one: %s", error)
