"""Counts the commands that clients send to a Redis server, with MONITOR.

Commands of scripts and of the given client are not counted. MONITOR costs the server time: no processor time is
measured meanwhile.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from urllib.parse import urlsplit

from redis import Redis

#: The client sends this at the end of the row: all commands before it have been counted by then.
END = "bench:end"


class Sent:
    """`commands` counts commands by name; complete once the block has ended."""

    def __init__(self) -> None:
        self.commands: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return sum(self.commands.values())


@contextmanager
def sent(url: str, client: Redis) -> Iterator[Sent]:
    """Count what all clients except `client` send while the block runs."""
    place = urlsplit(url)
    counted = Sent()
    with socket.create_connection((str(place.hostname), place.port or 6379)) as connection:
        lines = connection.makefile("rb")
        connection.sendall(b"MONITOR\r\n")
        lines.readline()
        ours = str(client.client_info()["addr"]).encode()
        listener = Thread(target=_count, args=(lines, ours, counted), daemon=True)
        listener.start()
        try:
            yield counted
        finally:
            client.echo(END)
            listener.join()


def _count(lines: Iterator[bytes], ours: bytes, counted: Sent) -> None:
    """A line is `+<seconds> [<database> <client, or lua>] "<command>" "<argument>" …`."""
    for line in lines:
        _, _, rest = line.partition(b" [")
        whose, _, what = rest.partition(b"] ")
        source = whose.partition(b" ")[2]
        if source == ours:
            if END.encode() in what:
                return
        elif source != b"lua":
            name = what.split(b" ", 1)[0].strip(b'"\r\n').decode().upper()
            counted.commands[name] += 1
