"""Waits of a running handler: in place, or parked. A parked update runs again after the wait, or when Redis is back.

The decision is final: if a handler swallows ParkUpdate, its further calls raise it again, and the update is parked when
the handler ends. ParkUpdate is a BaseException, so that a bot's `except Exception` does not catch it.

A wait in place ends early when the worker stops or the lease is lost, except in a prefork child, which learns of
neither and waits at most FLOOD_WAIT. Waits in place count towards UPDATE_TIMEOUT; a wait that would exceed it is parked
instead.
"""

from __future__ import annotations

import logging
import math
import random
import time
from typing import NoReturn, Protocol

from celery_lanes.errors import LeaseLost, RedisAway
from celery_lanes.runtime import clock
from celery_lanes.worker import is_stopping
from chatlanes.telegram.errors import Unauthorized

logger = logging.getLogger(__name__)

#: How often a wait in place checks the lease and the worker's state.
CHECK_EVERY_S = 0.2
#: The share by which waits for the whole bot are lengthened at random. Otherwise all parked updates would come back at
#: the same moment and be refused again.
SPREAD = 0.1
#: How long an update waits whose call was refused with 401.
TOKEN_AGAIN_S = 30.0


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


class RunLease(Protocol):
    """The part of lanes.Delivery that is needed here."""

    @property
    def id(self) -> str: ...

    def is_lost(self) -> bool: ...


class Waiting:
    """The waits of one run of a handler. `deadline_s`: when UPDATE_TIMEOUT is over, as time.monotonic(). `parking` is
    None in a hook.
    """

    def __init__(self, held: RunLease, parking: Parking | None, deadline_s: float | None = None) -> None:
        self._held = held
        self._parking = parking
        self._deadline_s = deadline_s

    @property
    def parks(self) -> bool:
        return self._parking is not None

    def for_hook(self) -> Waiting:
        """The waits of a hook: it cannot be parked, and the deadline of the run does not apply to it."""
        return Waiting(self._held, None)

    def check(self) -> None:
        """Raises ParkUpdate if the run is to be parked."""
        if self._parking is not None:
            self._parking.check()

    def cut_off(self, outage: RedisAway) -> NoReturn:
        """Raises ParkUpdate; in a hook, the outage."""
        if self._parking is None:
            raise outage
        self._parking.cut_off(outage)

    def left_s(self) -> float:
        """Seconds until UPDATE_TIMEOUT."""
        return math.inf if self._deadline_s is None else self._deadline_s - time.monotonic()

    def in_place(self, reason: str, wait_s: float) -> None:
        """Sleep for `wait_s`. Raises LeaseLost, and ParkUpdate when the worker stops."""
        until_s = time.monotonic() + wait_s
        while (left_s := until_s - time.monotonic()) > 0:
            if self._held.is_lost():
                raise LeaseLost(f"the lease of {self._held.id} was lost during a flood wait")
            if self.parks and is_stopping():
                self.park(reason, left_s)
            time.sleep(min(left_s, CHECK_EVERY_S))

    def park(self, reason: str, wait_s: float, *, together: bool = False) -> NoReturn:
        """Raises ParkUpdate. `together`: other updates wait for the same moment, so the wait is spread."""
        assert self._parking is not None, "a hook is refused, not parked"  # noqa: S101
        spread = random.uniform(0.0, SPREAD) if together else 0.0  # noqa: S311  not a secret
        self._parking.park(f"flood wait: {reason}", wait_s * (1 + spread))

    def unauthorized(self, error: Unauthorized) -> NoReturn:
        """Raises ParkUpdate, because the token of this process is wrong, not the update; in a hook, the error."""
        if self._parking is None:
            raise error
        logger.error(
            "Telegram refuses the bot's token: %s is tried again after %.0f s. If the token was replaced, restart all "
            "processes with the new one",
            self._held.id,
            TOKEN_AGAIN_S,
        )
        self._parking.park(str(error), TOKEN_AGAIN_S)

    def log(self, text: str) -> None:
        logger.info("%s: %s", self._held.id, text)
