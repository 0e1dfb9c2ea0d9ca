"""The clock for leases on this machine.

Guarantees that all processes of a machine read the same value, and that it advances while the machine is suspended: a
worker that resumes after an hour must see that its leases are over. Between machines only the TIME of Redis is used.
"""

import time

#: Linux' CLOCK_MONOTONIC stops during suspend, CLOCK_BOOTTIME does not (clock_gettime(2)).
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_s() -> float:
    return time.clock_gettime(_CLOCK)
