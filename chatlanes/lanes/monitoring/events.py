"""Task events are told only while somebody listens, and then many in one message.

Celery builds and publishes three for each task, heard or not, and waits for Redis each time: with appendfsync always
for the disk. Promises that who begins to listen as Flower, `celery events` and every Receiver of Celery do hears all
that comes from then on; that none is held for longer than GATHER_S and a round trip; that they keep their order, and
that the last are sent before the worker leaves. `-E` (worker_send_task_events) tells them always, as in Celery.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from celery import bootsteps
from celery.events.dispatcher import EventDispatcher
from celery.worker.consumer.events import Events

#: Long enough for the events of many tasks to come together; nobody who looks at Flower notices.
GATHER_S = 0.05
#: As many would be sent by whoever has the last of them, who has other things to do.
AT_MOST = 10_000
TASK = "task"
TOGETHER = frozenset({TASK})

#: What Celery's banner says, and what is so.
BANNER_WORDS = ("OFF (enable -E to monitor tasks in this worker)", "while somebody listens (-E: always)")

#: The worker's own events: it asks with each of them who listens.
ASKING = frozenset({"worker-online", "worker-heartbeat"})
#: So many answers in a row say that nobody does, 2 s apart: a listener that lost its connection is back by then.
QUIET_AFTER = 3


class TaskEventDispatcher(EventDispatcher):
    """Begins and ends to tell of tasks: Celery's own switch for it, the groups, is turned here too.

    An empty `groups` is -E. What `celery control disable_events` turned off stays off until the listeners change.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._listeners: int | None = None
        self._unanswered = 0
        super().__init__(*args, **kwargs)

    @property
    def sends_task_events(self) -> bool:
        """Nothing need be made for an event that is not sent."""
        return self.enabled and (not self.groups or TASK in self.groups)

    def send(self, type: str, *, retry: bool = False, **fields: Any) -> Any:  # noqa: A002 - Celery's word
        """`retry` is not done: a heartbeat would hold up the loop, which hears of SIGTERM, until Redis is back. What
        cannot be sent is kept, and sent when Celery connects again.
        """
        sent = super().send(type, **fields)
        if type in ASKING and self.enabled and self.groups:
            # Celery's Heart says how much is active. A heartbeat without that was asked for by somebody who is about
            # to listen, and may not be subscribed yet.
            if "active" in fields:
                self._look()
            else:
                self._start_task_events()
        return sent

    def flush(self, errors: bool = True, groups: bool = True) -> None:
        """As Celery 5.7's: events that other threads add meanwhile stay for the next time. 5.6 drops them."""
        super().flush(errors, groups=False)
        if not groups:
            return
        with self.mutex:
            for group, events in self._group_buffer.items():
                if events and self.producer is not None:
                    batch = list(events)
                    self._publish(batch, self.producer, f"{group}.multi")
                    del events[: len(batch)]

    def _look(self) -> None:
        """Other workers hear heartbeats too (gossip): only a change of their number says that somebody may listen."""
        listeners, before = self._listeners_of_last(), self._listeners
        if listeners is None:
            return
        self._listeners = listeners
        if TASK not in self.groups and listeners == before:
            return
        match self._ask():
            case None:
                pass  # Redis is away
            case 0:
                self._unanswered += 1
                if self._unanswered >= QUIET_AFTER:
                    self.groups.discard(TASK)
            case _:
                self._start_task_events()

    def _start_task_events(self) -> None:
        self._unanswered = 0
        self.groups.add(TASK)

    def _ask(self) -> int | None:
        """How many hear of tasks. No task at all is what they are told: Celery's Receivers take it for nothing."""
        with self.mutex:
            if self.producer is None:
                return None
            self.producer.channel.heard_by = None
            self._publish([], self.producer, f"{TASK}.multi")
            return self._listeners_of_last()

    def _listeners_of_last(self) -> int | None:
        """How many heard the last message. None: it was not sent."""
        producer = self.producer
        return None if producer is None else getattr(producer.channel, "heard_by", None)


def say_in_banner_when_events_are_sent(instance: Any, **_: Any) -> None:
    """In the banner of a worker that starts."""
    banner = instance.startup_info
    instance.startup_info = lambda *args, **how: banner(*args, **how).replace(*BANNER_WORDS)


class GatherEvents(bootsteps.StartStopStep):
    """Of the consumer: begins again with each connection, ends when Celery shuts it down, after the pool."""

    requires = (Events,)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._sender: Sender | None = None

    def start(self, consumer: Any) -> None:
        self.shutdown(consumer)
        dispatcher = consumer.event_dispatcher
        if dispatcher and dispatcher.enabled:
            self._sender = Sender(dispatcher)

    def shutdown(self, consumer: Any) -> None:
        if self._sender:
            self._sender.stop()
            self._sender = None


class Sender:
    """A thread, or with gevent a greenlet, that sends what has come together: nobody who runs tasks waits for it."""

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
