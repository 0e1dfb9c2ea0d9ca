"""The decision to park an update: it runs again after a wait, or when Redis is back.

The decision is final: if a handler swallows ParkUpdate, its further calls raise it again, and the update is parked when
the handler ends. ParkUpdate is a BaseException, so that a bot's `except Exception` does not catch it.
"""

from __future__ import annotations

from typing import NoReturn

from celery_lanes.errors import RedisAway
from celery_lanes.runtime import clock


class FloodWait(Exception):  # noqa: N818  a wait, not an error
    """The reason for parking an update, as Flower and the log show it."""


class ParkUpdate(BaseException):
    """Ends a handler whose update is parked and runs again later. Handlers must not catch it."""


class Parking:
    """The decision to park one run of a handler. The handler's threads and greenlets may share it."""

    def __init__(self) -> None:
        self.reason = ""  # empty while the run is not parked for a flood wait
        self.outage: RedisAway | None = None  # the Redis outage that ended a call or a session access
        self._until_s = 0.0  # clock.now_s

    @property
    def is_wanted(self) -> bool:
        return bool(self.reason) or self.outage is not None

    def delay_s(self) -> float:
        """The rest of the wait."""
        return max(0.0, self._until_s - clock.now_s())

    def park(self, reason: str, delay_s: float) -> NoReturn:
        """Raises ParkUpdate. After several calls, the longest wait counts."""
        until_s = clock.now_s() + delay_s
        if until_s > self._until_s:
            self.reason, self._until_s = reason, until_s
        raise ParkUpdate(reason)

    def cut_off(self, outage: RedisAway) -> NoReturn:
        """Raises ParkUpdate, because the run cannot continue without Redis."""
        self.outage = outage
        raise ParkUpdate(str(outage)) from outage

    def check(self) -> None:
        """Raises ParkUpdate if the run is to be parked, so that it makes no more calls."""
        if self.is_wanted:
            raise ParkUpdate(self.reason or str(self.outage))
