"""The handler of the throughput rows, which does nothing, and the line that reports that a worker is ready."""

from __future__ import annotations

from typing import Any

from bench.measure.scale import READY


def handle(update: dict[str, Any]) -> None:
    """Measures only the cost of delivery."""


def say_ready(**_: Any) -> None:
    """Connect it to Celery's `worker_ready`."""
    print(READY, flush=True)
