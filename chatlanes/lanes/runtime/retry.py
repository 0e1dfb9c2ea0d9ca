"""The waits of one run for a Redis that is away.

Promises that an outage of Redis is told apart from an error of the task: RedisAway is raised here only, for commands
of ours. Promises nothing about a step that may not happen twice: it may have happened, and only its answer was lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from redis.exceptions import AuthenticationError, RedisError, ResponseError

from chatlanes.lanes.errors import RedisAway
from chatlanes.lanes.runtime import clock
from chatlanes.lanes.runtime.loop_jobs import pause
from chatlanes.lanes.worker.stopping import is_stopping

T = TypeVar("T")

#: A server that restarts is back within seconds; what waits for it holds a slot.
PAUSE_S = 0.1
#: A worker that was told to stop has 10 s, and one attempt may take 5.
STOPPING_WITHIN_S = 3.0
#: A wait that takes longer is an outage's doing. An answer takes milliseconds.
LONG_S = 1.0
#: What a server in trouble answers to every write, whatever is written.
_REFUSALS = ("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN")


class Waits:
    """`answers` says whether Redis answers a command that nothing can be wrong with. Threads and greenlets may share
    one.
    """

    def __init__(self, within_s: float, answers: Callable[[], bool]) -> None:
        self._within_s = within_s
        self._answers = answers
        self._began_s: dict[object, float] = {}  # of those under way
        self._was_cut_short = False

    @property
    def is_cut_off(self) -> bool:
        """Whether the run waits for Redis at this moment, or was interrupted while it did."""
        now_s = clock.now_s()
        return self._was_cut_short or any(now_s - began_s >= LONG_S for began_s in [*self._began_s.values()])

    def insist(self, step: Callable[[], T]) -> T:
        """The result of the step, which is repeated while Redis is away or refuses.

        Raises RedisAway after `within_s`, and what the step raises when Redis answers everything else.
        """
        began_s = self._began_s[this := object()] = clock.now_s()
        try:
            return self._until_it_works(step, began_s)
        except RedisError:
            raise
        except BaseException:  # a time limit
            self._was_cut_short |= clock.now_s() - began_s >= LONG_S
            raise
        finally:
            del self._began_s[this]

    def _until_it_works(self, step: Callable[[], T], began_s: float) -> T:
        while True:
            try:
                return step()
            except (RedisError, OSError) as error:
                waited_s = clock.now_s() - began_s
                if waited_s >= (min(self._within_s, STOPPING_WITHIN_S) if is_stopping() else self._within_s):
                    if not is_stopping() and self._is_innocent(error):
                        break
                    raise RedisAway(f"Redis is away for {waited_s:.0f} s: {error}") from error
            pause(PAUSE_S)
        return step()  # Redis has just come back, or the step is what it cannot do

    def _is_innocent(self, error: Exception) -> bool:
        """Whether nothing is wrong with Redis now."""
        if isinstance(error, AuthenticationError) or str(error).startswith(_REFUSALS):
            return False
        return isinstance(error, ResponseError) or self._answers()
