"""Retries of the commands of one run while Redis is away.

Guarantees that an outage of Redis is distinguished from an error of the task: RedisAway is raised only here, for our
own commands. Does not guarantee that a step runs once: it may have run although its answer was lost.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TypeVar

from redis.exceptions import AuthenticationError, RedisError, ResponseError

from celery_lanes.errors import RedisAway
from celery_lanes.runtime import clock, threads

T = TypeVar("T")

#: A server that restarts is back within seconds; a waiting run keeps its slot.
PAUSE_S = 0.1
#: A worker has 10 s to stop, and one attempt may take 5.
STOPPING_WITHIN_S = 3.0
#: An answer takes milliseconds: a longer wait means an outage.
LONG_S = 1.0
#: Error codes with which a server refuses every write.
_REFUSALS = ("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN")


class Retries:
    """Used by the threads and greenlets of one run.

    `answers` returns True if Redis answers a harmless command; `is_stopping` returns True once this worker must stop.
    """

    def __init__(self, within_s: float, answers: Callable[[], bool], is_stopping: Callable[[], bool]) -> None:
        self._within_s = within_s
        self._answers = answers
        self._is_stopping = is_stopping
        self._began_s: dict[object, float] = {}  # for each retry in progress
        self._was_away = False

    @property
    def is_cut_off(self) -> bool:
        """True if an outage of Redis has taken time from the run."""
        now_s = clock.now_s()
        return self._was_away or any(now_s - began_s >= LONG_S for began_s in [*self._began_s.values()])

    def until_done(self, step: Callable[[], T]) -> T:
        """The result of the step, which is repeated while Redis is away or refuses writes.

        Raises RedisAway after `within_s`, and the step's own error if Redis answers everything else.
        """
        began_s = self._began_s[this := object()] = clock.now_s()
        try:
            return self._repeat(step, began_s)
        except RedisError:
            began_s = inf  # Redis was not away: it is the step's own error
            raise
        finally:
            self._was_away |= clock.now_s() - began_s >= LONG_S
            del self._began_s[this]

    def _repeat(self, step: Callable[[], T], began_s: float) -> T:
        while True:
            try:
                return step()
            except (RedisError, OSError) as error:
                waited_s, stops = clock.now_s() - began_s, self._is_stopping()
                if waited_s >= (min(self._within_s, STOPPING_WITHIN_S) if stops else self._within_s):
                    if not stops and self._is_the_steps_own(error):
                        break
                    raise RedisAway(f"Redis is away for {waited_s:.0f} s: {error}") from error
            threads.sleep(PAUSE_S)
        return step()  # Redis has just come back, or the step itself is wrong

    def _is_the_steps_own(self, error: Exception) -> bool:
        """True if nothing is wrong with Redis now."""
        if isinstance(error, AuthenticationError) or str(error).startswith(_REFUSALS):
            return False
        return isinstance(error, ResponseError) or self._answers()
