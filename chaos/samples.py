"""Looks every half second at how much waits, and now and then at what Telegram received, while all else is under fire.

Promises every call, though the simulator keeps only the last ones: `calls` ends with the last of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import requests
from redis import Redis
from redis.exceptions import RedisError

from chatlanes.sandbox.simulator import Simulator

EVERY_S = 0.5
READ_CALLS_EVERY_S = 20.0
#: A call younger than this may not have been carried out yet.
CALL_TAKES_S = 2.0


class Samples(threading.Thread):
    """`backlog` are pairs: when, and how many updates were neither finished nor buried, at Telegram's or in Redis."""

    def __init__(self, telegram: Simulator, redis_port: int, pending: Callable[[Redis], int]) -> None:
        super().__init__(name="samples", daemon=True)
        self.backlog: list[tuple[float, int]] = []
        self.calls: list[dict[str, Any]] = []
        self._telegram = Simulator(telegram.url, telegram.token)  # a session of its own: it is a thread of its own
        self._redis = Redis(port=redis_port, socket_timeout=1.0)
        self._pending = pending
        self._ended = threading.Event()

    def run(self) -> None:
        read_s = time.time()
        while not self._ended.wait(EVERY_S):
            if time.time() > read_s + READ_CALLS_EVERY_S:
                read_s = time.time()
                self._read_calls(read_s - CALL_TAKES_S)
            if (waiting := self.look()) is not None:
                self.backlog.append((time.time(), waiting))

    def look(self) -> int | None:
        """None while Redis does not answer."""
        try:
            return int(self._telegram.stats()["pending"]) + self._pending(self._redis)
        except (RedisError, OSError, requests.RequestException):
            return None

    def end(self) -> None:
        """When nobody calls any more."""
        self._ended.set()
        self.join()
        self._read_calls(float("inf"))
        self._redis.close()

    def _read_calls(self, before_s: float) -> None:
        last = self.calls[-1]["number"] if self.calls else 0
        self.calls += [call for call in self._telegram.calls("sendMessage", after=last) if call["at"] < before_s]
