"""A connection of a channel, besides kombu's own, with at most one command in flight.

The event loop polls it: the sender of a command goes on, and reads the answer when the loop reports it readable.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import Any

#: An answer that takes longer is given up: the connection is dropped, and the command is sent again.
OVERDUE_S = 15.0


@dataclass
class PolledConnection:
    """`kind` is the name under which kombu's poller knows it."""

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
        """The answer. Whatever is raised, the command is no longer in flight."""
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
            if channel.connection is not None:  # a loop that kept polling a closed socket would break
                channel.connection.cycle.unwatch(channel, client, self.kind)
            client.connection = None
            connection.disconnect()
