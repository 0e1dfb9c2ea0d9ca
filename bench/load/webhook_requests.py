"""python -m bench.load.webhook_requests: sends updates to a webhook as fast as it answers, and prints the rate.

Each connection has one request in flight. Prints JSON: answers per second between 10 % and 95 % of the answers, their
times in ms, and the count of each status. The requests are built before the clock starts.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter, deque
from urllib.parse import urlsplit

import orjson

from bench.load.updates import make_updates
from bench.measure.figures import percentile, steady_rate


class PostConnection(asyncio.Protocol):
    """One connection. Parses only the status and the length of an answer."""

    def __init__(self, run: HttpLoad) -> None:
        self._run = run
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, end, body = self._got.partition(b"\r\n\r\n")
        if not end or len(body) < _length(head):
            return
        self._got = b""
        self._run.answered(int(head[9:12]), time.monotonic() - self._sent_at_s)
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self._run.closed(error)

    def _send(self) -> None:
        if not self._run.requests:
            self._transport.close()
            return
        self._sent_at_s = time.monotonic()
        self._transport.write(self._run.requests.popleft())


class HttpLoad:
    """The load of all connections."""

    def __init__(self, requests: deque[bytes], connections: int) -> None:
        self.requests = requests
        self.total = len(requests)
        self.waits_ms: list[float] = []
        self.statuses: Counter[int] = Counter()
        self.samples: list[tuple[float, int]] = []
        self._open = connections
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answered(self, status: int, after_s: float) -> None:
        self.statuses[status] += 1
        self.waits_ms.append(after_s * 1000)
        self.samples.append((time.monotonic(), self.total - len(self.waits_ms)))

    def closed(self, error: Exception | None) -> None:
        self._open -= 1
        if self._open == 0 and not self.done.done():
            self.done.set_result(None)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0


def request(url: str, secret: str, body: bytes) -> bytes:
    place = urlsplit(url)
    lines = [
        f"POST {place.path or '/'} HTTP/1.1",
        f"Host: {place.netloc}",
        "Content-Type: application/json",
        f"X-Telegram-Bot-Api-Secret-Token: {secret}",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def run(url: str, secret: str, count: int, chats: int, first: int, connections: int) -> HttpLoad:
    requests = deque(request(url, secret, orjson.dumps(update)) for update in make_updates(count, chats, first=first))
    running, place = HttpLoad(requests, connections), urlsplit(url)
    for _ in range(connections):
        await asyncio.get_running_loop().create_connection(
            lambda: PostConnection(running), str(place.hostname), place.port or 80
        )
    await running.done
    return running


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.load.webhook_requests", description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--secret", default="")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--chats", type=int, default=500)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--connections", type=int, default=40)
    given = parser.parse_args()
    load = asyncio.run(run(given.url, given.secret, given.count, given.chats, given.first, given.connections))
    if len(load.waits_ms) < given.count:
        sys.exit(f"only {len(load.waits_ms)} of {given.count} requests were answered")
    figures = {
        "rate": steady_rate(load.samples, load.total),
        "median_ms": percentile(load.waits_ms, 50),
        "p99_ms": percentile(load.waits_ms, 99),
        "statuses": {str(status): times for status, times in load.statuses.items()},
    }
    sys.stdout.write(orjson.dumps(figures).decode() + "\n")


if __name__ == "__main__":
    main()
