"""One experiment: an app on an empty server, its workers, gates to hold tasks at, and their history."""

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

from chatlanes import lanes
from chatlanes.lanes.leases import registry
from chatlanes.lanes.protocol import keys
from chatlanes.lanes.protocol.connect import connect_like
from chatlanes.lanes.protocol.store import Store
from tests.support import lab_app as described
from tests.support.history import Event, check_once_each, ids, read
from tests.support.waiting import until
from tests.support.worker import Worker


class Lab:
    """`settings` are the arguments of app.build besides the url."""

    def __init__(self, url: str, directory: Path, **settings: Any) -> None:
        self.directory = directory
        self.settings = {"url": url, **settings}
        self.app: Celery = described.build(**self.settings)
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
        asks_neighbours: bool = False,
        **settings: Any,
    ) -> Worker:
        """A running worker; `settings` on top of the app's."""
        worker = Worker(
            next(self._names),
            self.directory,
            {**self.settings, **settings},
            pool=pool,
            slots=slots,
            arguments=arguments,
            env={described.HISTORY: str(self.history_file), described.GATES: str(self.directory)},
            is_awaited=is_awaited,
            asks_neighbours=asks_neighbours,
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
        queue: str = described.LANE_QUEUES[0],
        **kwargs: Any,
    ) -> None:
        """One message, which app.py's `task` runs with these arguments."""
        self.lanes[message_id] = lane_keys
        self.send(message_id, lane_keys, task=task, queue=queue, kwargs=kwargs)

    def publish_many(self, messages: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
        """Many at once: id -> lane keys; each goes to the queue of its first key."""
        self.lanes.update(messages)
        with self.app.producer_pool.acquire(block=True) as producer, batch(producer):
            for message_id, lane_keys in messages.items():
                queue = described.LANE_QUEUES[sum(lane_keys[0].encode()) % len(described.LANE_QUEUES)]
                self.send(message_id, lane_keys, queue=queue, kwargs=kwargs, producer=producer)

    def send(
        self,
        message_id: str,
        lane_keys: Sequence[str],
        *,
        task: str = "run",
        queue: str = described.LANE_QUEUES[0],
        **options: Any,
    ) -> None:
        """One message that `check_once_each` does not ask for, with options of apply_async."""
        self.app.tasks[task].apply_async(
            task_id=message_id, queue=queue, headers=lanes.headers(list(lane_keys)), **options
        )

    def publish_plainly(self, task: str, task_id: str, *, kwargs: dict[str, Any] | None = None, **options: Any) -> None:
        """One task without lanes, on the ordinary queue."""
        self.app.tasks[task].apply_async(
            kwargs=kwargs or {}, task_id=task_id, queue=described.ORDINARY_QUEUE, **options
        )

    # -- gates, and what happened

    def open(self, gate: str) -> None:
        (self.directory / gate).touch()

    @property
    def history_file(self) -> Path:
        return self.directory / "history"

    @property
    def history(self) -> list[Event]:
        return read(self.history_file)

    def started(self, *message_ids: str) -> None:
        """Waits until each of these has started."""
        until(lambda: set(message_ids) <= set(ids(self.history, "start")))

    def ended(self, *message_ids: str) -> None:
        """Waits until each of these has ended."""
        until(lambda: set(message_ids) <= set(ids(self.history, "end")))

    def drained(self) -> None:
        """Waits until Redis has heard that everything is settled or buried."""
        until(lambda: self.pending() == 0)

    def check_once_each(self) -> None:
        check_once_each(self.history, self.lanes)

    # -- what Redis holds

    def count(self, name: str) -> int:
        return int(self.client.hget(keys.COUNTS, name) or 0)

    def pending(self) -> int:
        return self.store.pending()

    def state_of(self, message_id: str) -> str | None:
        """None: it is settled."""
        state = self.client.hget(keys.message(message_id), "state")
        return state.decode() if state else None

    def leases(self) -> list[str]:
        return [each.decode() for each in self.client.zrange(keys.LEASES, 0, -1)]

    def dead(self) -> list[str]:
        return [each.decode() for each in self.client.zrange(keys.DEAD, 0, -1)]

    def problem(self, message_id: str) -> str:
        """The last one that was written down for a message."""
        return (self.client.lindex(keys.errors(message_id), -1) or b"").decode()

    def close(self) -> None:
        for worker in self._workers:
            worker.end()
        # A background thread of this process would notice that the next test empties the server.
        registry.stop_background()
        registry._threads.clear()
        with suppress(OSError):
            self.app.close()
        self.client.close()


needs_batches = pytest.mark.skipif(not hasattr(Producer, "batch"), reason="kombu has batches since 5.7")


def batch(producer: Any) -> Any:
    """kombu 5.7's batch, which changes how the messages are appended, not what."""
    return producer.batch(500) if hasattr(producer, "batch") else nullcontext()


LabMaker = Callable[..., Lab]


def numbered(count: int, lane_keys: Callable[[int], Iterable[str]]) -> dict[str, Sequence[str]]:
    """Messages m0, m1, …, each with the keys that this function gives its number."""
    return {f"m{n}": tuple(lane_keys(n)) for n in range(count)}
