"""Wait for a condition instead of sleeping."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Generous: only a failing test waits this long.
WITHIN_S = 60.0


def until(condition: Callable[[], T], within_s: float = WITHIN_S) -> T:
    """Poll until `condition` returns a true value, and return it. Fails after `within_s`."""
    deadline = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"the condition was not met within {within_s} s"
        time.sleep(0.01)
