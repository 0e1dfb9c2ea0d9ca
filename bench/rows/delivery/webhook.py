"""Webhook: how fast the receiver answers, against an app that only answers and against one apply_async per request.

The receiver is pinned to one processor, the load generator to another; Redis shares both. webhook_order.py measures the
order of the updates in their lanes.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import orjson

from bench.apps.receiver import CONNECTIONS, PATH, SECRET, answers_at, receiver_settings
from bench.measure.backlog_rate import until
from bench.measure.figures import Goal, Result, Side
from bench.measure.harness import ROOT, BenchFailedError, Harness, emptied
from bench.measure.rounds import alternate
from bench.measure.scale import CHATS
from bench.rows.delivery import webhook_order
from celery_lanes.embedded_server import HOST, free_port

#: share of the requests/s of an app that does nothing
GOAL = Goal("ratio", "at least", 0.3)


def run(harness: Harness) -> list[Result]:
    return [*_answers(harness), *webhook_order.run(harness)]


def _answers(harness: Harness) -> list[Result]:
    with harness.server("webhook") as url:
        sides = {name: Answering(harness, url, name) for name in ("lanes", "bare", "stock")}
        measured = alternate(harness.scale.rounds, {name: side.measure for name, side in sides.items()})
    ours, bare, stock = (Side(name, measured[name]) for name in ("lanes", "bare", "stock"))
    p99 = {name: Side(name, side.p99_ms) for name, side in sides.items()}
    case = f"{CONNECTIONS} connections"
    return [
        Result("webhook", f"{case}, beside an app that only answers", "requests/s", ours, bare, GOAL),
        Result("webhook", f"{case}, beside one apply_async per request", "requests/s", ours, stock),
        Result("webhook", f"{case}, answer's p99, beside one apply_async", "ms", p99["lanes"], p99["stock"]),
    ]


class Answering:
    """One side: a program that answers. Each round starts a new process on an empty Redis."""

    def __init__(self, harness: Harness, url: str, name: str) -> None:
        self._stage, self._url, self._name = harness, url, name
        self.p99_ms: list[float] = []

    def measure(self) -> float:
        """Requests per second."""
        port, count = free_port(), self._stage.scale.hooks[self._name]
        place = f"http://{HOST}:{port}{PATH}"
        settings = receiver_settings(self._url, port)
        own = (
            ("poller", "webhook")
            if self._name == "lanes"
            else ("bench.apps.stock_webhook", self._name, str(port), self._url)
        )
        with (
            emptied(self._url),
            self._stage.child(f"{self._name}-hook", "bench.load.pinned", "0", *own, **settings) as child,
        ):
            until(lambda: answers_at(place), [child], f"{self._name} listens")
            figures = _send(place, count)
        self.p99_ms.append(figures["p99_ms"])
        self._stage.report(f"webhook {self._name}, {count}: {figures['rate']:,.0f}/s, p99 {figures['p99_ms']:.1f} ms")
        return float(figures["rate"])


def _send(place: str, count: int) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "bench.load.pinned",
        "1",
        "bench.load.webhook_requests",
        "--url",
        place,
        "--secret",
        SECRET,
    ]
    command += ["--count", str(count), "--chats", str(CHATS), "--connections", str(CONNECTIONS)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT)
    if ran.returncode:
        raise BenchFailedError(f"sending to {place}: {ran.stderr.strip()[-500:]}")
    figures: dict[str, Any] = orjson.loads(ran.stdout)
    if set(figures["statuses"]) != {"200"}:
        raise BenchFailedError(f"sending to {place}: answered with {figures['statuses']}")
    return figures
