"""Putting an update off in the middle of its handler: it goes back to its lanes and runs again, after a wait for flood
control, or when Redis is there again.

Promises that what was decided once holds: a handler that swallows ParkUpdate is parked all the same when it ends, and
none of its calls is made any more. It is a BaseException so that a bot's `except Exception` does not take it for a
failure of its own.
"""

from typing import NoReturn

from chatlanes.lanes.errors import RedisAway
from chatlanes.lanes.runtime import clock


class FloodWait(Exception):  # noqa: N818  what it is: a wait, and no error
    """Why an update was parked: what Flower and the log show."""


class ParkUpdate(BaseException):
    """The update runs again later. Let it pass."""


class Parking:
    """Of one run of a handler. Threads and greenlets of it may share it."""

    def __init__(self) -> None:
        self.reason = ""  # none while the run goes on
        self.outage: RedisAway | None = None  # what one of its calls or its session met
        self._until_s = 0.0  # clock.now_s

    @property
    def is_wanted(self) -> bool:
        return bool(self.reason) or self.outage is not None

    def delay_s(self) -> float:
        """What is left of the wait."""
        return max(0.0, self._until_s - clock.now_s())

    def park(self, reason: str, delay_s: float) -> NoReturn:
        """Raises ParkUpdate. The longest wait of several counts."""
        until_s = clock.now_s() + delay_s
        if until_s > self._until_s:
            self.reason, self._until_s = reason, until_s
        raise ParkUpdate(reason)

    def cut_off(self, outage: RedisAway) -> NoReturn:
        """Raises ParkUpdate: the run cannot go on without Redis."""
        self.outage = outage
        raise ParkUpdate(str(outage)) from outage

    def check(self) -> None:
        """Raises ParkUpdate when that was decided already: nothing is called any more."""
        if self.is_wanted:
            raise ParkUpdate(self.reason or str(self.outage))
