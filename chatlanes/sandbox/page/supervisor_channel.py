"""The page's end of its channel to the supervisor: lines of JSON on standard input and output.

This process ends when the supervisor is gone. Without a supervisor nothing is known of the workers.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import orjson

#: Problems that are kept.
MOST_PROBLEMS = 50

Publish = Callable[[str, dict[str, Any]], None]


class SupervisorChannel:
    """`publish` sends an event to the pages."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self.workers: list[dict[str, Any]] = []
        #: Pid -> name of every worker so far.
        self.names: dict[int, str] = {}
        self.problems: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self.killed = 0

    async def listen(self) -> None:
        """Runs until the supervisor ends."""
        if not stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode):
            return
        lines = asyncio.StreamReader(limit=1 << 20)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        while line := await lines.readline():
            self._receive(orjson.loads(line))
        os._exit(0)

    def _receive(self, news: dict[str, Any]) -> None:
        if "workers" in news:
            self.workers = news["workers"]
            self.names |= {worker["pid"]: worker["name"] for worker in self.workers if worker["pid"]}
        if "problem" in news:
            self.add_problem({**news["problem"], "solved": False})
        if news.get("solved"):
            for problem in list(self.problems.values()):
                if problem["kind"] != "handler" and not problem["solved"]:
                    self.add_problem({**problem, "solved": True})

    def add_problem(self, problem: dict[str, Any]) -> None:
        """A new problem, or a changed one with the same id."""
        self.problems[problem["id"]] = problem
        while len(self.problems) > MOST_PROBLEMS:
            self.problems.popitem(last=False)
        self._publish("problem", problem)

    def kill(self, name: str | None, busy: dict[str, int]) -> dict[str, Any] | None:
        """Kill the named worker, or the busiest. Returns its {name, pid}; None if it does not run."""
        alive = [worker for worker in self.workers if worker["alive"] and name in (None, worker["name"])]
        if not alive:
            return None
        chosen = max(alive, key=lambda worker: busy.get(worker["name"], 0))
        self.killed += 1
        self.workers = [
            worker | ({"alive": False, "killed": True} if worker is chosen else {}) for worker in self.workers
        ]
        _order({"kill": chosen["name"]})
        return {"name": chosen["name"], "pid": chosen["pid"]}

    def restart(self) -> None:
        _order({"restart": True})


def _order(order: dict[str, Any]) -> None:
    print(orjson.dumps(order).decode(), flush=True)  # noqa: T201 - the supervisor reads it
