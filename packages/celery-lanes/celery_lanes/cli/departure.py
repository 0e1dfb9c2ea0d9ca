"""Moves the messages of a lane queue that no worker has to an ordinary queue of kombu: the way back from lanes.

Guarantees that each message is in its lanes or in the list at any moment, even if Redis or this process dies, that the
messages of a lane are in the list in its order, and that no worker with lanes starts a later one meanwhile: the queue
is paused, and stays so. The list has no lanes: its workers may run two messages of a key at the same time.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from uuid import uuid4

from celery import Celery
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps

from celery_lanes.cli.formatting import LAST_MS
from celery_lanes.monitoring import inspection
from celery_lanes.monitoring.inspection import Record
from celery_lanes.protocol import Leaving, Store, envelope, keys
from celery_lanes.transport.publish import timer_of

#: Messages that are read and moved in one step. A longer step would delay other clients.
AT_ONCE = 100


class Departure:
    """One move, from a lane queue to the list of an ordinary queue."""

    def __init__(self, app: Celery, queue: str, to: str) -> None:
        self.store: Store = app.lanes.store
        self.queue, self.to = queue, to
        #: How many have moved, and how many that have waited for their eta.
        self.moved = self.timers = 0
        #: How many stayed, by state.
        self.stays: Counter[str] = Counter()

    def run(self) -> None:
        """Pauses the queue, and moves its messages, also those that are published before the end is reached."""
        self.store.pause("queue", self.queue)
        name, passed = keys.pending(keys.group_of(self.queue)), 0
        while ids := [bytes_to_str(each) for each in self.store.client.zrange(name, passed, passed + AT_ONCE - 1)]:
            records = inspection.records(self.store.client, ids)
            passed += len(ids) - self._move([each for each in records if each.queue == self.queue])
        self._move_timers()

    def dead(self) -> int:
        """How many dead letters the queue has. They stay."""
        client = self.store.client
        return sum(each.queue == self.queue for each in inspection.records(client, inspection.dead(client)))

    def _move(self, records: Sequence[Record]) -> int:
        """Returns how many have moved."""
        leaving = list(self._leaving(records))
        moved = self.store.move_out(self.to, leaving)
        gone = {each.id for each, is_moved in zip(leaving, moved, strict=True) if is_moved}
        self.moved += len(gone)
        self.stays.update(each.state for each in records if each.id not in gone)
        return len(gone)

    def _leaving(self, records: Sequence[Record]) -> Iterator[Leaving]:
        with self.store.client.pipeline(transaction=False) as pipe:
            for each in records:
                pipe.get(keys.body(each.id))
                pipe.zscore(keys.DELAYED, each.id)
            found = pipe.execute()
        for each, stored, due_ms in zip(records, found[::2], found[1::2], strict=True):
            if stored is not None and each.size == 1:
                # One that has failed waits until its next attempt; another one for the pace of its lanes.
                at_ms = due_ms if each.failed or each.parked else None
                element = self._element(each.id, stored, each.failed, at_ms)
                if element is not None:
                    yield Leaving(each.id, stored, element)

    def _move_timers(self) -> None:
        owners = self.store.timer_owners(timer_of("")[0])
        for first in range(0, len(owners), AT_ONCE):
            leaving = []
            for timer in self.store.timers(*owners[first : first + AT_ONCE]):
                element = self._element(timer.id, timer.stored, 0, timer.at_ms)
                is_of_task = (timer.owner, timer.name) == timer_of(timer.id)
                if timer.queue == self.queue and is_of_task and element is not None:
                    leaving.append(Leaving(timer.id, timer.stored, element, (timer.owner, timer.name)))
            self.timers += sum(self.store.move_out(self.to, leaving))

    def _element(self, message_id: str, stored: bytes, failed: int, at_ms: float | None) -> bytes | None:
        """The message as kombu publishes it. None: it cannot be read."""
        lane = {"failed": failed, "died": 0}
        try:
            message = envelope.unpack(stored, message_id=message_id, queue=self.to, tag=str(uuid4()), lane=lane)
            properties, headers = message["properties"], message["headers"]
            del headers[envelope.LANE]
            if at_ms is not None and "task" in headers:
                headers["eta"] = datetime.fromtimestamp(min(at_ms, LAST_MS) / 1000, UTC).isoformat()
            if properties.get("body_encoding", "utf-8") == "utf-8":
                properties["body_encoding"] = "base64"
                message["body"] = base64.b64encode(message["body"].encode()).decode()
            return dumps(message).encode()
        except (ValueError, LookupError, TypeError, AttributeError):
            return None
