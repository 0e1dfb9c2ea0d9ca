"""Groups of workers: how many, with which options, and whether each is pinned to a processor."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from itertools import cycle
from typing import NamedTuple

from bench.systems.backlogs import worker


class WorkerSetup(NamedTuple):
    """A number of workers with these options; `is_pinned`: each runs on one processor, so threads do not migrate."""

    workers: int
    options: Sequence[str]
    is_pinned: bool = False

    def commands(self, url: str) -> list[list[str]]:
        commands = []
        for number, processor in zip(range(self.workers), cycle(sorted(_processors())), strict=False):
            named = worker("tasks", url, *self.options, "-n", f"bench{number}@%h")
            pinned = ["taskset", "-c", str(processor)] if self.is_pinned else []
            commands.append([*pinned, sys.executable, "-m", *named])
        return commands

    def __str__(self) -> str:
        return f"{self.workers} × {' '.join(self.options)}{', a processor each (taskset)' * self.is_pinned}"


def divided(at_once: int, pool: str) -> tuple[WorkerSetup, ...]:
    """`at_once` slots in one process, or split over two."""
    one, two = (WorkerSetup(workers, ("-P", pool, "-c", str(at_once // workers))) for workers in (1, 2))
    can_pin = shutil.which("taskset") is not None and len(_processors()) >= two.workers
    return (two, *([two._replace(is_pinned=True)] if can_pin else []), one)


def _processors() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}
