"""What a framework does once at the start of a process, and once at its end.

Promises that `start` has run before the first update of this process, once, however many come at the same time; and
that `stop` runs when Celery ends this process in order: a child of prefork, or a worker of another pool. A killed
process stops nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from threading import Lock
from typing import Any

from celery import signals

log = logging.getLogger(__name__)


class Lifetime:
    """Of one bot. A start that raises is tried again with the next update."""

    def __init__(self, start: Callable[[], object], stop: Callable[[], object]) -> None:
        self._start, self._stop = start, stop
        self._lock = Lock()
        self._pid: int | None = None
        signals.worker_process_shutdown.connect(self._end, weak=False)
        signals.worker_shutdown.connect(self._end, weak=False)

    def begin(self) -> None:
        """Before each update. Raises what `start` raises."""
        if self._pid == os.getpid():
            return
        with self._lock:
            if self._pid != os.getpid():
                self._start()
                self._pid = os.getpid()

    def _end(self, **_: Any) -> None:
        if self._pid != os.getpid():
            return
        self._pid = None
        try:
            self._stop()
        except Exception:
            log.exception("the bot's own shutdown failed")
