"""What a framework does once at the start of a process, and once at its end.

Promises that `start` has run before the first update of this process, once, however many come at the same time; and
that `stop` runs when Celery ends this process in order: a child of prefork, or a worker of another pool. A killed
process stops nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any

from celery import signals

from tasks.bot.current import handling
from tasks.bot.event_loop import event_loop

log = logging.getLogger(__name__)

#: What a shutdown may take before its process ends without it.
STOP_WITHIN_S = 10.0


class AsyncLifetime:
    """Of one bot, on this process's event loop. A start that raises is tried again with the next update."""

    def __init__(
        self, start: Callable[[], Coroutine[Any, Any, object]], stop: Callable[[], Coroutine[Any, Any, object]]
    ) -> None:
        self._start, self._stop = start, stop
        self._pid: int | None = None
        self._lock: tuple[int, asyncio.Lock] | None = None
        signals.worker_process_shutdown.connect(self._end, weak=False)
        signals.worker_shutdown.connect(self._end, weak=False)

    async def begin(self) -> None:
        """Before each update. Raises what `start` raises."""
        if self._pid == os.getpid():
            return
        if self._lock is None or self._lock[0] != os.getpid():
            self._lock = (os.getpid(), asyncio.Lock())
        async with self._lock[1]:
            if self._pid != os.getpid():
                with handling(None):  # its calls are not the update's
                    await self._start()
                self._pid = os.getpid()

    def _end(self, **_: Any) -> None:
        if self._pid != os.getpid():
            return
        self._pid = None
        try:
            event_loop().run(self._stop(), STOP_WITHIN_S)
        except Exception:
            log.exception("the bot's own shutdown failed")
