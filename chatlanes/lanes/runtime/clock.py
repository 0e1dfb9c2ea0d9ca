"""The clock that leases are judged by on this machine.

Promises that all processes of a machine read the same value and that it counts while the machine is suspended:
a worker that wakes after an hour must see that its leases are over. Says nothing about other machines' clocks;
between machines only Redis' own TIME counts.
"""

import time

#: Linux' monotonic clock stands still during suspend, CLOCK_BOOTTIME does not (clock_gettime(2)).
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_s() -> float:
    return time.clock_gettime(_CLOCK)
