"""kombu's batches (`producer.batch()`, since kombu 5.7): the messages for lane queues become one append.

Guarantees that all of them are appended, in order, or none. If the append raises an error, either may be the case.
"""

from __future__ import annotations

from typing import Any

from kombu.exceptions import BatchPublishError
from kombu.transport.redis import PublishBatch
from redis.exceptions import RedisError

from chatlanes.lanes.protocol.commands import NewMessage


class LanesBatch(PublishBatch):
    """kombu's publish batch. Messages for lane queues are sent first, in one append."""

    def __init__(self, channel: Any, max_size: int) -> None:
        super().__init__(channel, max_size)
        self._rows: list[NewMessage] = []

    def append(self, new: NewMessage) -> None:
        self._rows.append(new)
        if len(self._rows) >= self.max_size:
            self.flush()

    def flush(self) -> None:
        self._check_usable()
        rows, self._rows = self._rows, []
        if rows:
            try:
                self.channel.store.append(rows)
            except RedisError as error:
                self._failed = error
                raise BatchPublishError("the append of a batch failed; Redis may or may not have stored it") from error
        super().flush()

    def discard(self) -> None:
        self._rows = []
        super().discard()
