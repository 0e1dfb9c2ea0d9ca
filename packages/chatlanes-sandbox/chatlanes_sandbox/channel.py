"""The channel between the supervisor and the page: lines of JSON on the simulator's standard input and output.

The supervisor's end never blocks: output that the page does not read yet is sent later. The page's process ends when
the supervisor is gone. Without a supervisor the page knows nothing of the workers.
"""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import orjson

READ_AT_ONCE = 1 << 16


class PageChannel:
    """The supervisor's end. It sends {"workers": […]}, {"problem": {…}} and {"solved": true}; the page sends
    {"kill": name} and {"restart": true}.
    """

    def __init__(self, simulator: subprocess.Popen[str]) -> None:
        assert simulator.stdin is not None  # noqa: S101 - one with a page has both
        assert simulator.stdout is not None  # noqa: S101
        self._in, self._out = simulator.stdin.fileno(), simulator.stdout.fileno()
        for end in (self._in, self._out):
            os.set_blocking(end, False)
        self._begun = self._unsent = b""
        self._workers: list[dict[str, Any]] = []
        self._problems = 0

    def fileno(self) -> int:
        return self._out

    def orders(self) -> list[dict[str, Any]] | None:
        """None: the page has ended."""
        try:
            read = os.read(self._out, READ_AT_ONCE)
        except BlockingIOError:
            return []
        *whole, self._begun = (self._begun + read).split(b"\n")
        return [orjson.loads(line) for line in whole] if read else None

    def send_workers(self, workers: list[dict[str, Any]]) -> None:
        """{name, pid, alive, killed} of each."""
        if workers != self._workers:
            self._workers = workers
            self._unsent += _line({"workers": workers})
        self.send()

    def send_problem(self, kind: str, title: str, traceback: str, runs_since_s: float | None = None) -> None:
        """One that keeps the bot, or its newest code, from running.

        `runs_since_s`: when the code that the workers run meanwhile was imported; None: none runs.
        """
        self._problems += 1
        problem = {"id": f"{kind}{self._problems}", "at_s": time.time(), "kind": kind, "title": title}
        problem["runs_since_s"] = runs_since_s
        self._unsent += _line({"problem": {**problem, "traceback": traceback, "update_id": None}})
        self.send()

    def send_solved(self) -> None:
        """The bot runs again."""
        self._unsent += _line({"solved": True})
        self.send()

    def send(self) -> None:
        with suppress(BlockingIOError, BrokenPipeError):
            while self._unsent:
                self._unsent = self._unsent[os.write(self._in, self._unsent) :]


def _line(news: dict[str, Any]) -> bytes:
    return orjson.dumps(news) + b"\n"


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

    @property
    def has_supervisor(self) -> bool:
        """True if the standard input is a pipe, as the supervisor opens it."""
        return stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode)

    async def listen(self) -> None:
        """Runs until the supervisor ends."""
        if not self.has_supervisor:
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
