"""What a measurement took of the machine: processor time of processes with their children, and of Redis servers.

Promises differences of counters that the kernel and Redis keep, so that being looked at costs what is measured nothing.
Does not see children that ended in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import psutil
from redis import Redis


def cpu_s(pids: Iterable[int]) -> float:
    """Processor seconds, user and system, that these processes and their children have used since they began."""
    total = 0.0
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            for each in (process, *process.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    times = each.cpu_times()
                    total += times.user + times.system
    return total


def server_cpu_s(clients: Iterable[Redis]) -> float:
    """The same of these servers, as they say themselves."""
    told = [client.info("cpu") for client in clients]
    return sum(float(each["used_cpu_user"]) + float(each["used_cpu_sys"]) for each in told)
