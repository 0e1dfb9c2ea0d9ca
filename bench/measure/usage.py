"""Resource usage of a measurement: processor time of processes with their children, and of Redis servers.

Uses differences of counters of the kernel and Redis, so sampling costs the measured programs nothing. Children that end
between two samples are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

import psutil
from redis import Redis

from bench.measure.figures import STEADY_FROM, STEADY_TO


def cpu_s(pids: Iterable[int]) -> float:
    """Processor seconds, user and system, that these processes and their children have used since their start."""
    total = 0.0
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            for each in (process, *process.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    times = each.cpu_times()
                    total += times.user + times.system
    return total


def idle_cpu_s(pid: int) -> float:
    """Processor seconds of a process, its children and all their threads, with nanosecond resolution: clock ticks are
    too coarse for an idle process. Threads that have ended are not counted.
    """
    process = psutil.Process(pid)
    pids = (each.pid for each in (process, *process.children(recursive=True)))
    threads = (thread for pid in pids for thread in Path(f"/proc/{pid}/task").iterdir())
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def server_cpu_s(clients: Iterable[Redis]) -> float:
    """Processor seconds of these servers, as they report them."""
    reported = [client.info("cpu") for client in clients]
    return sum(float(each["used_cpu_user"]) + float(each["used_cpu_sys"]) for each in reported)


def tree_cpu_s(pid: int) -> tuple[float, float]:
    """Processor seconds of a process and of its children, separately."""
    both, own = cpu_s([pid]), 0.0
    with suppress(psutil.NoSuchProcess):
        times = psutil.Process(pid).cpu_times()
        own = float(times.user + times.system)
    return own, both - own


def memory_mb(pid: int) -> float:
    """Memory of a process and its children; shared memory is counted once."""
    process = psutil.Process(pid)
    shares = [each.memory_full_info().pss for each in (process, *process.children(recursive=True))]
    return float(sum(shares)) / 1e6


def exchanged_bytes(client: Redis) -> int:
    """Bytes exchanged between the server and all currently connected clients except this one."""
    own = client.client_id()
    return sum(
        int(each["tot-net-in"]) + int(each["tot-net-out"]) for each in client.client_list() if int(each["id"]) != own
    )


Sample = TypeVar("Sample")


class Meter(Generic[Sample]):
    """Counts the messages left, and samples twice: at the start and at the end of the measured stretch (figures.py)."""

    def __init__(self, left: Callable[[], int], total: int, sample: Callable[[], Sample]) -> None:
        self._left, self._total, self._sample = left, total, sample
        self._marks: list[tuple[int, Sample]] = []

    def __call__(self) -> int:
        left = self._left()
        shares = (STEADY_FROM, STEADY_TO)
        if len(self._marks) < len(shares) and left <= self._total * (1 - shares[len(self._marks)]):
            self._marks.append((left, self._sample()))
        return left

    def between(self) -> tuple[int, Sample, Sample]:
        """(number done between the samples, first sample, second sample)."""
        (before, first), (after, second) = self._marks
        if before == after:
            raise ValueError(f"all of {self._total} were done between two samples: too few to measure")
        return before - after, first, second
