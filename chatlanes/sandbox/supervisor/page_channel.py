"""The supervisor's end of its channel to the page: lines of JSON on the simulator's standard input and output.

Never blocks: output that the page does not read yet is sent later.
"""

from __future__ import annotations

import os
import subprocess
import time
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
