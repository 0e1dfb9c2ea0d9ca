"""Task events of a worker without an event loop (gevent) go out together, as those of the other pools do.

Celery sends each of them by itself there, three for a task, one after another: a round trip each, which with
appendfsync always waits for the disk. Promises that none is held for longer than GATHER_S and a round trip, that they
keep their order, and that the last are sent before the worker leaves. What cannot be sent waits as Celery has it wait.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from celery import bootsteps
from celery.worker.consumer.events import Events

#: Long enough for the events of many tasks to come together; nobody who looks at Flower notices.
GATHER_S = 0.05
#: As many would be sent by whoever has the last of them, who has other things to do.
AT_MOST = 10_000
TOGETHER = frozenset({"task"})


class GatherEvents(bootsteps.StartStopStep):
    """Of the consumer: begins again with each connection, ends when Celery shuts it down, after the pool."""

    requires = (Events,)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._sender: Sender | None = None

    def start(self, consumer: Any) -> None:
        self.shutdown(consumer)
        dispatcher = consumer.event_dispatcher
        if consumer.hub is None and dispatcher and dispatcher.enabled:
            self._sender = Sender(dispatcher)

    def shutdown(self, consumer: Any) -> None:
        if self._sender:
            self._sender.stop()
            self._sender = None


class Sender:
    """A thread, or with gevent a greenlet, that sends what has come together."""

    def __init__(self, dispatcher: Any) -> None:
        self._dispatcher = dispatcher
        self._wanted, self._stopping = threading.Event(), threading.Event()
        dispatcher.buffer_limit, dispatcher.on_send_buffered = AT_MOST, self._wanted.set
        dispatcher.buffer_group = TOGETHER  # from here on they are kept
        self._thread = threading.Thread(target=self._run, name="task events", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns when everything is sent."""
        self._stopping.set()
        self._wanted.set()
        self._thread.join()
        self._dispatcher.flush()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wanted.wait()
            # Cleared before they are taken: one that comes now asks again.
            self._wanted.clear()
            self._dispatcher.flush()
            time.sleep(GATHER_S)
