"""A connection of a channel's own, besides kombu's, on which at most one command is under way.

The loop polls it: whoever sent a command goes on, and reads the answer when the loop says that it is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import Any

#: An answer that takes longer will not come: the connection is dropped, and what was asked is asked again.
OVERDUE_S = 15.0


@dataclass
class Line:
    """One connection, on which at most one command is under way."""

    kind: str
    client: Any = None
    sent_s: float | None = None  # monotonic

    @property
    def is_waiting(self) -> bool:
        return self.sent_s is not None

    def send(self, channel: Any, command: list[Any]) -> None:
        if self.client is None:
            self.client = channel._create_client(asynchronous=True)
        channel.connection.cycle.watch(channel, self.client, self.kind)
        self.sent_s = monotonic()
        self.client.connection.send_command(*command)

    def read(self) -> Any:
        """The answer. Whatever is raised, the command is no longer under way."""
        try:
            return self.client.parse_response(self.client.connection, self.kind)
        finally:
            self.sent_s = None

    def is_overdue(self) -> bool:
        return self.sent_s is not None and monotonic() - self.sent_s > OVERDUE_S

    def has_answer(self, within_s: float) -> bool:
        return bool(self.client.connection.can_read(timeout=within_s))

    def drop(self, channel: Any) -> None:
        self.sent_s = None
        client, self.client = self.client, None
        connection = getattr(client, "connection", None)
        if connection is not None:
            if channel.connection is not None:  # a loop that went on polling a closed socket would break
                channel.connection.cycle.unwatch(channel, client, self.kind)
            client.connection = None
            connection.disconnect()
