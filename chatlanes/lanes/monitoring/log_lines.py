"""One log line for a lost connection, instead of a traceback of a hundred lines.

Under gevent Celery's remote control runs in a greenlet of its own, which ends with the error; another one starts with
the next connection. Only connection and channel errors are caught.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from celery.worker.pidbox import gPidbox
from kombu.log import get_logger

logger = get_logger(__name__)

_stock_loop = gPidbox.loop


@wraps(_stock_loop)
def _loop(self: Any, consumer: Any) -> None:
    try:
        _stock_loop(self, consumer)
    except (*consumer.connection_errors, *consumer.channel_errors) as error:
        logger.warning("lanes: remote control waits for the next connection to Redis: %s", error)


def say_it_in_one_line() -> None:
    gPidbox.loop = _loop
