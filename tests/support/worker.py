"""Real `celery worker` processes of lab_app.py.

Promises that `Worker(…)` returns when the worker consumes, and that nothing of it is left after `end`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.support.process import Process

CELERY = [sys.executable, "-m", "celery", "-A", "tests.support.lab_app"]
READY = " ready."


def environment(settings: dict[str, Any], more: dict[str, str]) -> dict[str, str]:
    """For `celery -A tests.support.lab_app`: `settings` are the arguments of lab_app.build."""
    return {"LANES_TEST": json.dumps(settings), **more}


class Worker(Process):
    """`settings` are the arguments of lab_app.build; `name` is what it is called in the history."""

    def __init__(
        self,
        name: str,
        directory: Path,
        settings: dict[str, Any],
        *,
        pool: str,
        slots: int,
        arguments: Sequence[str] = (),
        env: dict[str, str] | None = None,
        is_awaited: bool = True,
        asks_neighbours: bool = False,
    ) -> None:
        command = [*CELERY, "worker", "--loglevel", "INFO", "--pool", pool, "--concurrency", str(slots)]
        command += ["--hostname", f"{name}@test", *arguments]
        if not asks_neighbours:  # saves each worker a second
            command.append("--without-mingle")
        super().__init__(name, command, directory, environment(settings, {"LANES_WORKER": name, **(env or {})}), [])
        if is_awaited:
            self.tells(READY)

    def children(self) -> list[int]:
        return [child.pid for child in psutil.Process(self.pid).children(recursive=True)]
