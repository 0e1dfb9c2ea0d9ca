"""kombu's batches (`producer.batch()`, since kombu 5.7): the messages for lane queues become one append.

Guarantees that all of them are appended, in order, or none. If the append raises an error, either may be the case.
More than MOST are several appends, so that none keeps Redis from serving others.
Messages with an eta or countdown follow the append, one by one.
"""

from __future__ import annotations

from typing import Any

from kombu.exceptions import BatchPublishError
from kombu.transport.redis import PublishBatch
from redis.exceptions import RedisError

from celery_lanes.protocol import NewMessage
from celery_lanes.transport.publish import timer_of

MOST = 200


class LanesBatch(PublishBatch):
    """kombu's publish batch. Messages for lane queues are sent first, in one append."""

    def __init__(self, channel: Any, max_size: int) -> None:
        super().__init__(channel, min(max_size, MOST))
        self._rows: list[NewMessage] = []
        self._timers: list[tuple[NewMessage, int]] = []

    def append(self, new: NewMessage, at_ms: int | None) -> None:
        """`at_ms`: when a message with an eta is due."""
        if at_ms is None:
            self._rows.append(new)
        else:
            self._timers.append((new, at_ms))
        if len(self._rows) + len(self._timers) >= self.max_size:
            self.flush()

    def flush(self) -> None:
        self._check_usable()
        rows, timers = self._rows, self._timers
        self._rows, self._timers = [], []
        if rows or timers:
            try:
                if rows:
                    self.channel.store.append(rows)
                for new, at_ms in timers:
                    self.channel.store.schedule(new, *timer_of(new.id), at_ms=at_ms)
            except RedisError as error:
                self._failed = error
                raise BatchPublishError("the append of a batch failed; Redis may or may not have stored it") from error
        super().flush()

    def discard(self) -> None:
        self._rows, self._timers = [], []
        super().discard()
