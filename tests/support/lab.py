"""The test bench for lanes: a Celery app on an empty server, its workers, gates that hold tasks, and a history."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu import Producer
from redis import Redis

import celery_lanes as lanes
from celery_lanes.leases import background
from celery_lanes.protocol import Store, connect_like, keys
from tests.support import lab_app
from tests.support.history import Event, check_once_each, ids, read
from tests.support.waiting import until
from tests.support.worker import Worker


class Lab:
    """`settings` are the arguments of lab_app.build, except the url."""

    def __init__(self, url: str, directory: Path, **settings: Any) -> None:
        self.directory = directory
        self.settings = {"url": url, **settings}
        self.app: Celery = lab_app.build(**self.settings)
        self.client: Redis = connect_like(self.app.connection_for_write())
        self.store = Store(self.client)
        self.lanes: dict[str, Sequence[str]] = {}  # of every message published with `publish`
        self._workers: list[Worker] = []
        self._names = (f"w{n}" for n in itertools.count(1))

    # -- workers

    def worker(
        self,
        pool: str = "solo",
        slots: int = 1,
        *arguments: str,
        is_awaited: bool = True,
        mingles: bool = False,
        **settings: Any,
    ) -> Worker:
        """Start a worker. `settings` override those of the app."""
        worker = Worker(
            next(self._names),
            self.directory,
            {**self.settings, **settings},
            pool=pool,
            slots=slots,
            arguments=arguments,
            env={lab_app.HISTORY: str(self.history_file), lab_app.GATES: str(self.directory)},
            is_awaited=is_awaited,
            mingles=mingles,
        )
        self._workers.append(worker)
        return worker

    # -- messages

    def publish(
        self,
        message_id: str,
        lane_keys: Sequence[str],
        *,
        task: str = "run",
        queue: str = lab_app.LANE_QUEUES[0],
        **kwargs: Any,
    ) -> None:
        """Publish one message for this task of lab_app.py, with `kwargs` as its arguments."""
        self.lanes[message_id] = lane_keys
        self.send(message_id, lane_keys, task=task, queue=queue, kwargs=kwargs)

    def publish_many(self, messages: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
        """Publish messages in batches: id -> lane keys. The first key determines the queue."""
        self.lanes.update(messages)
        with self.app.producer_pool.acquire(block=True) as producer, batch(producer):
            for message_id, lane_keys in messages.items():
                queue = lab_app.LANE_QUEUES[sum(lane_keys[0].encode()) % len(lab_app.LANE_QUEUES)]
                self.send(message_id, lane_keys, queue=queue, kwargs=kwargs, producer=producer)

    def send(
        self,
        message_id: str,
        lane_keys: Sequence[str],
        *,
        task: str = "run",
        queue: str = lab_app.LANE_QUEUES[0],
        group: lanes.Group | None = None,
        stops: bool = False,
        **options: Any,
    ) -> None:
        """Publish one message that `check_once_each` ignores, with options of apply_async."""
        self.app.tasks[task].apply_async(
            task_id=message_id,
            queue=queue,
            headers=lanes.headers(list(lane_keys), group=group, stops=stops),
            **options,
        )

    def publish_unordered(
        self, task: str, task_id: str, *, kwargs: dict[str, Any] | None = None, **options: Any
    ) -> None:
        """Publish one task without lanes, to the ordinary queue."""
        self.app.tasks[task].apply_async(kwargs=kwargs or {}, task_id=task_id, queue=lab_app.ORDINARY_QUEUE, **options)

    # -- gates and the history

    def open(self, gate: str) -> None:
        (self.directory / gate).touch()

    @property
    def history_file(self) -> Path:
        return self.directory / "history"

    @property
    def history(self) -> list[Event]:
        return read(self.history_file)

    def started(self, *message_ids: str) -> None:
        """Wait until each of these has started."""
        until(lambda: set(message_ids) <= set(ids(self.history, "start")))

    def ended(self, *message_ids: str) -> None:
        """Wait until each of these has ended."""
        until(lambda: set(message_ids) <= set(ids(self.history, "end")))

    def drained(self) -> None:
        """Wait until every message is settled or buried in Redis."""
        until(lambda: self.pending() == 0)

    def check_once_each(self) -> None:
        check_once_each(self.history, self.lanes)

    # -- the state in Redis

    def count(self, name: str) -> int:
        return int(self.client.hget(keys.COUNTS, name) or 0)

    def pending(self) -> int:
        return self.store.pending()

    def state_of(self, message_id: str) -> str | None:
        """The state of a message; None if it is settled."""
        state = self.client.hget(keys.message(message_id), "state")
        return state.decode() if state else None

    def leases(self) -> list[str]:
        return [each.decode() for each in self.client.zrange(keys.LEASES, 0, -1)]

    def dead(self) -> list[str]:
        return [each.decode() for each in self.client.zrange(keys.DEAD, 0, -1)]

    def problem(self, message_id: str) -> str:
        """The last error recorded for a message."""
        return (self.client.lindex(keys.errors(message_id), -1) or b"").decode()

    def close(self) -> None:
        for worker in self._workers:
            worker.end()
        # The background threads of this process would report a data loss when the next test empties the server.
        background.stop_background()
        if hasattr(self.app.backend, "result_consumer"):
            self._close_results()
        with suppress(OSError):
            self.app.close()
        self.client.close()

    def _close_results(self) -> None:
        backend = self.app.backend
        backend.result_consumer.stop()
        # Otherwise an AsyncResult that is freed later connects again to unsubscribe.
        backend.result_consumer._pubsub = None
        backend.client.close()


needs_batches = pytest.mark.skipif(not hasattr(Producer, "batch"), reason="kombu has batches since 5.7")


def batch(producer: Any) -> Any:
    """kombu 5.7's batch, if available: the messages are appended together, with the same result."""
    return producer.batch(500) if hasattr(producer, "batch") else nullcontext()


LabMaker = Callable[..., Lab]


def numbered(count: int, lane_keys: Callable[[int], Iterable[str]]) -> dict[str, Sequence[str]]:
    """Messages m0, m1, …, with the keys that `lane_keys` returns for each number."""
    return {f"m{n}": tuple(lane_keys(n)) for n in range(count)}
