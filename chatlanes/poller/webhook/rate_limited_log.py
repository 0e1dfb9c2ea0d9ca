"""Warnings that a stranger can cause as often as they like, at a bounded rate.

Guarantees a line for the first of each kind at once, then one every LOG_EVERY_S at most, with the number of them.
"""

import logging
import time
from collections import Counter

log = logging.getLogger("poller")

LOG_EVERY_S = 30.0


class RateLimitedLog:
    """`prefix` stands before each line."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._unlogged: Counter[str] = Counter()
        self._logged_at_s: dict[str, float] = {}

    def count(self, words: str) -> None:
        """`words` are the kind; they hold nothing of what was sent."""
        now_s = time.monotonic()
        self._unlogged[words] += 1
        if now_s - self._logged_at_s.get(words, float("-inf")) < LOG_EVERY_S:
            return
        self._logged_at_s[words] = now_s
        log.warning("%s%s (%d since last told)", self._prefix, words, self._unlogged.pop(words))
