"""Samples the number of waiting updates every half second, and reads every 20 s the messages and edits that Telegram
received.

`calls` is complete although the simulator keeps only the most recent calls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import requests
from redis import Redis
from redis.exceptions import RedisError

from chatlanes_sandbox.simulator import Simulator

EVERY_S = 0.5
READ_CALLS_EVERY_S = 20.0
#: The calls that are kept.
METHODS = ("sendMessage", "editMessageText")
#: A younger call may still be in progress.
CALL_TAKES_S = 2.0


class Samples(threading.Thread):
    """`backlog` has pairs: time, and number of updates neither finished nor buried, at Telegram or in Redis."""

    def __init__(self, telegram: Simulator, redis_port: int, pending: Callable[[Redis], int]) -> None:
        super().__init__(name="samples", daemon=True)
        self.backlog: list[tuple[float, int]] = []
        self.calls: list[dict[str, Any]] = []
        self._telegram = Simulator(telegram.url, telegram.token)  # a session for this thread
        self._redis = Redis(port=redis_port, socket_timeout=1.0)
        self._pending = pending
        self._ended = threading.Event()
        self._last_call = 0

    def run(self) -> None:
        read_s = time.time()
        while not self._ended.wait(EVERY_S):
            if time.time() > read_s + READ_CALLS_EVERY_S:
                read_s = time.time()
                self._read_calls(read_s - CALL_TAKES_S)
            if (waiting := self.waiting()) is not None:
                self.backlog.append((time.time(), waiting))

    def waiting(self) -> int | None:
        """None while Redis does not answer."""
        try:
            return int(self._telegram.stats()["pending"]) + self._pending(self._redis)
        except (RedisError, OSError, requests.RequestException):
            return None

    def end(self) -> None:
        """Call when no more calls are made."""
        self._ended.set()
        self.join()
        self._read_calls(float("inf"))
        self._redis.close()

    def _read_calls(self, before_s: float) -> None:
        read = [call for call in self._telegram.calls(after=self._last_call) if call["at"] < before_s]
        self._last_call = max((call["number"] for call in read), default=self._last_call)
        self.calls += [call for call in read if call["method"] in METHODS]
