"""Sends task events only while there are listeners, and many of them in one message.

Celery publishes three events for each task, even without listeners, and waits for Redis each time, which waits for the
disk with appendfsync always. Guarantees that a listener such as Flower, `celery events` or any Receiver of Celery gets
all events from when it begins to listen, in order, delayed by at most GATHER_S and a round trip, and that the last
events are sent before the worker ends. With `-E` (worker_send_task_events) events are always sent, as in Celery.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from celery import bootsteps
from celery.events.dispatcher import EventDispatcher
from celery.worker.consumer.events import Events

#: Long enough to collect the events of many tasks, short enough for people who watch Flower.
GATHER_S = 0.05
#: With this many buffered events, the thread that adds the last one sends them itself. High, because it has other work.
MOST_BUFFERED = 10_000
TASK = "task"
BUFFERED_GROUPS = frozenset({TASK})

#: The text in Celery's banner, and the correct one.
BANNER_WORDS = ("OFF (enable -E to monitor tasks in this worker)", "while there are listeners (-E: always)")

#: Events of the worker itself. After each of them it counts the listeners.
PROBING = frozenset({"worker-online", "worker-heartbeat"})
#: Task events end after this many counts of 0 in a row, 2 s apart: a listener that lost its connection is back by then.
QUIET_AFTER = 3


class TaskEventDispatcher(EventDispatcher):
    """Switches task events on and off through `groups`, as Celery itself does.

    Empty `groups` mean -E. After `celery control disable_events` they stay off until the number of listeners changes.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._listeners: int | None = None
        self._empty_counts = 0
        super().__init__(*args, **kwargs)

    @property
    def sends_task_events(self) -> bool:
        """False if no task event needs to be built, because it would not be sent."""
        return self.enabled and (not self.groups or TASK in self.groups)

    def send(self, type: str, *, retry: bool = False, **fields: Any) -> Any:  # noqa: A002 - Celery's word
        """Ignores `retry`: a heartbeat would block the loop, which also handles SIGTERM, until Redis is back. Events
        that cannot be sent are kept, and sent when Celery connects again.
        """
        sent = super().send(type, **fields)
        if type in PROBING and self.enabled and self.groups:
            # A heartbeat of Celery's Heart has the field `active`. One without it was requested by a program that is
            # about to listen, and may not be subscribed yet.
            if "active" in fields:
                self._update()
            else:
                self._start_task_events()
        return sent

    def flush(self, errors: bool = True, groups: bool = True) -> None:
        """Like Celery 5.7: events that other threads add meanwhile stay for the next flush. 5.6 drops them."""
        super().flush(errors, groups=False)
        if not groups:
            return
        with self.mutex:
            for group, events in self._group_buffer.items():
                if events and self.producer is not None:
                    batch = list(events)
                    self._publish(batch, self.producer, f"{group}.multi")
                    del events[: len(batch)]

    def _update(self) -> None:
        """Switches by the number of listeners. Other workers receive heartbeats too (gossip), so only a change of the
        number means that there may be a new listener of task events.
        """
        listeners, before = self._receivers_of_last(), self._listeners
        if listeners is None:
            return
        self._listeners = listeners
        if TASK not in self.groups and listeners == before:
            return
        match self._count_task_listeners():
            case None:
                pass  # Redis is away
            case 0:
                self._empty_counts += 1
                if self._empty_counts >= QUIET_AFTER:
                    self.groups.discard(TASK)
            case _:
                self._start_task_events()

    def _start_task_events(self) -> None:
        self._empty_counts = 0
        self.groups.add(TASK)

    def _count_task_listeners(self) -> int | None:
        """How many clients listen to task events. Sends them an empty list, which Celery's Receivers ignore."""
        with self.mutex:
            if self.producer is None:
                return None
            self.producer.channel.heard_by = None
            self._publish([], self.producer, f"{TASK}.multi")
            return self._receivers_of_last()

    def _receivers_of_last(self) -> int | None:
        """How many clients received the last message; None if it was not sent."""
        producer = self.producer
        return None if producer is None else getattr(producer.channel, "heard_by", None)


def show_events_in_banner(instance: Any, **_: Any) -> None:
    """Corrects the text about events in the banner of a starting worker, if its app has lanes."""
    if not hasattr(instance.app, "lanes"):
        return
    banner = instance.startup_info
    instance.startup_info = lambda *args, **how: banner(*args, **how).replace(*BANNER_WORDS)


class GatherEvents(bootsteps.StartStopStep):
    """A step of the consumer: starts with each connection, and ends when Celery shuts it down, after the pool."""

    requires = (Events,)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._sender: EventSender | None = None

    def start(self, consumer: Any) -> None:
        self.shutdown(consumer)
        dispatcher = consumer.event_dispatcher
        if dispatcher and dispatcher.enabled:
            self._sender = EventSender(dispatcher)

    def shutdown(self, consumer: Any) -> None:
        if self._sender:
            self._sender.stop()
            self._sender = None


class EventSender:
    """A thread, or with gevent a greenlet, that sends the buffered events, so that tasks do not wait for it."""

    def __init__(self, dispatcher: Any) -> None:
        self._dispatcher = dispatcher
        self._has_events, self._stopping = threading.Event(), threading.Event()
        dispatcher.buffer_limit, dispatcher.on_send_buffered = MOST_BUFFERED, self._has_events.set
        dispatcher.buffer_group = BUFFERED_GROUPS  # from now on task events are buffered
        self._thread = threading.Thread(target=self._run, name="task events", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns when all events are sent."""
        self._stopping.set()
        self._has_events.set()
        self._thread.join()
        self._dispatcher.flush()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._has_events.wait()
            # Cleared before the flush: an event that is added meanwhile sets it again.
            self._has_events.clear()
            self._dispatcher.flush()
            time.sleep(GATHER_S)
