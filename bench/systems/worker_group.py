"""Workers that run for all rounds of a row: started once, and stopped (SIGSTOP) while the other side is measured.

A stopped side takes no processor time from the other. A round begins with all workers ready and the whole backlog
loaded.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count

import psutil
from redis import Redis

from bench.load.updates import make_updates
from bench.measure.backlog_rate import measure, until
from bench.measure.harness import BenchProcess, Harness, emptied
from bench.measure.scale import READY
from bench.systems.backlogs import BacklogSide, worker


@dataclass
class WorkerGroup:
    """`first` numbers the updates of each round: lanes drop update ids that they have seen."""

    harness: Harness
    side: BacklogSide
    url: str
    client: Redis
    children: list[BenchProcess]
    first: count[int]

    def measure(self, size: int, chats: int) -> float:
        """Tasks per second for a backlog that is loaded before the workers continue."""
        self.load(size, chats)
        with self.running():
            rate = measure(lambda: self.side.left(self.client), size, self.children)
        self.harness.report(f"{self.side.name}, {len(self.children)} workers, {size}: {rate:,.0f}/s")
        return rate

    def load(self, size: int, chats: int) -> None:
        self.side.load(self.client, self.url, make_updates(size, chats, first=next(self.first)))

    @contextmanager
    def running(self) -> Iterator[None]:
        signal_all(self.children, signal.SIGCONT)
        try:
            yield
        finally:
            signal_all(self.children, signal.SIGSTOP)


def signal_all(children: Iterable[BenchProcess], number: int) -> None:
    """Sends the signal to each child and all of its descendants."""
    for child in children:
        process = psutil.Process(child.pid)
        for each in (process, *process.children(recursive=True)):
            os.kill(each.pid, number)


@contextmanager
def worker_group(
    harness: Harness, side: BacklogSide, workers: Sequence[Sequence[str]], environment: Mapping[str, str] | None = None
) -> Iterator[WorkerGroup]:
    """Workers on their own server, all ready and stopped. `workers` has the options of each."""
    with harness.server(side.name) as url, emptied(url) as client, ExitStack() as stack:
        children = [
            stack.enter_context(
                harness.foreign(
                    f"{side.name}-{number}",
                    [sys.executable, "-m", *worker(side.app, url, *options, "-n", f"bench{number}@%h")],
                    **environment or {},
                )
            )
            for number, options in enumerate(workers)
        ]
        for child in children:
            until(lambda child=child: child.has_printed(READY), children, f"{child.name} is ready")  # type: ignore[misc]
        made = WorkerGroup(harness, side, url, client, children, count(1, 10_000_000))
        signal_all(children, signal.SIGSTOP)
        yield made
