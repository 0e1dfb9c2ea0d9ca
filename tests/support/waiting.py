"""Waiting for a condition, instead of sleeping."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Generous: it is only ever used up by a test that fails.
WITHIN_S = 60.0


def until(condition: Callable[[], T], within_s: float = WITHIN_S) -> T:
    """The first true value of `condition`; fails when there is none."""
    give_up_at = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < give_up_at, "waited in vain"
        time.sleep(0.01)
