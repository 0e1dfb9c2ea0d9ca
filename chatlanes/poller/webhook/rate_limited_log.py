"""Warnings that anyone on the network can cause, at a bounded rate.

Guarantees a line for the first warning of each kind at once, then at most one every LOG_EVERY_S, with their number.
"""

import logging
import time
from collections import Counter

log = logging.getLogger("poller")

LOG_EVERY_S = 30.0


class RateLimitedLog:
    """`prefix` is put before each line."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._unlogged: Counter[str] = Counter()
        self._logged_at_s: dict[str, float] = {}

    def count(self, words: str) -> None:
        """`words` identify the kind of warning; they contain nothing of the request."""
        now_s = time.monotonic()
        self._unlogged[words] += 1
        if now_s - self._logged_at_s.get(words, float("-inf")) < LOG_EVERY_S:
            return
        self._logged_at_s[words] = now_s
        log.warning("%s%s (%d since the last log line)", self._prefix, words, self._unlogged.pop(words))
