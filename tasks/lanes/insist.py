"""Asks Redis again while it is away.

Promises nothing about a step that may not happen twice: it may have happened, and only its answer was lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from redis.exceptions import RedisError

from tasks.lanes import clock
from tasks.lanes.errands import pause

T = TypeVar("T")

#: A server that restarts is back within seconds; what waits for it holds a slot.
PAUSE_S = 0.1


def insist(step: Callable[[], T], within_s: float) -> T:
    """What the step gives. Raises what it raises when Redis was away, or refused, for so long."""
    give_up_s = clock.now_s() + within_s
    while True:
        try:
            return step()
        except (RedisError, OSError):
            if clock.now_s() >= give_up_s:
                raise
        pause(PAUSE_S)
