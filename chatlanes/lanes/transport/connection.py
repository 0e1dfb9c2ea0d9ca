"""A connection of a channel, in addition to kombu's own, with at most one command in flight.

Sending a command does not block: the event loop polls the connection, and the answer is read when it is readable.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import Any

#: If the answer takes longer, the connection is dropped, and the command is sent again on a new one.
OVERDUE_S = 15.0


@dataclass
class PolledConnection:
    """`kind` is its name in kombu's poller."""

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
        """The answer. The command is no longer in flight afterwards, also if an error is raised."""
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
            if channel.connection is not None:  # polling a closed socket would break the event loop
                channel.connection.cycle.unwatch(channel, client, self.kind)
            client.connection = None
            connection.disconnect()
