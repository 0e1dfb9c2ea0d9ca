"""How an update waits for the gate: in place, for a moment, or parked, without a slot.

Promises that a wait in place ends early when the worker stops, or when the lease is lost as far as this process can
know: a forked child does not, and waits to the end, which is at most FLOOD_WAIT. Waits in place count towards
UPDATE_TIMEOUT, because nothing could stop that clock; one that would reach beyond it is parked instead.
"""

from __future__ import annotations

import logging
import math
import random
import time
from typing import NoReturn, Protocol

from chatlanes.lanes.errors import LeaseLost, RedisAway
from chatlanes.lanes.worker.stopping import is_stopping
from chatlanes.telegram.flood.parking import Parking

logger = logging.getLogger(__name__)

#: How soon a wait notices that it is pointless.
LOOK_EVERY_S = 0.2
#: All that wait for the whole bot would come back at one moment, and be refused once more.
SPREAD = 0.1


class RunLease(Protocol):
    """The lease of a run (lanes.Delivery)."""

    @property
    def id(self) -> str: ...

    def is_lost(self) -> bool: ...


class Waiting:
    """Of one run of a handler. `deadline_s` is UPDATE_TIMEOUT's, as time.monotonic(). Without a parking: of a hook."""

    def __init__(self, held: RunLease, parking: Parking | None, deadline_s: float | None = None) -> None:
        self._held = held
        self._parking = parking
        self._deadline_s = deadline_s

    @property
    def parks(self) -> bool:
        return self._parking is not None

    def beside(self) -> Waiting:
        """For a hook: its calls can wait in place only, and the limit of the run is over by then."""
        return Waiting(self._held, None)

    def check(self) -> None:
        """Raises ParkUpdate when that was decided already."""
        if self._parking is not None:
            self._parking.check()

    def cut_off(self, outage: RedisAway) -> NoReturn:
        """Raises ParkUpdate, or the outage for a hook."""
        if self._parking is None:
            raise outage
        self._parking.cut_off(outage)

    def left_s(self) -> float:
        """Until UPDATE_TIMEOUT."""
        return math.inf if self._deadline_s is None else self._deadline_s - time.monotonic()

    def here(self, reason: str, wait_s: float) -> None:
        """Raises LeaseLost, and ParkUpdate when the worker stops."""
        until_s = time.monotonic() + wait_s
        while (left_s := until_s - time.monotonic()) > 0:
            if self._held.is_lost():
                raise LeaseLost(f"the lease of {self._held.id} is over; it waits for nothing any more")
            if self.parks and is_stopping():
                self.park(reason, left_s)
            time.sleep(min(left_s, LOOK_EVERY_S))

    def park(self, reason: str, wait_s: float, *, together: bool = False) -> NoReturn:
        """Raises ParkUpdate. `together`: others wait for the same moment."""
        assert self._parking is not None, "who cannot be put off is refused"  # noqa: S101
        spread = random.uniform(0.0, SPREAD) if together else 0.0  # noqa: S311  not a secret
        self._parking.park(f"flood wait: {reason}", wait_s * (1 + spread))

    def log(self, text: str) -> None:
        logger.info("%s: %s", self._held.id, text)
