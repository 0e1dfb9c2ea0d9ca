"""Real `celery worker` processes that run lab_app.py.

`Worker(…)` returns when the worker consumes. After `end`, none of its processes is left.
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
    """The environment of `celery -A tests.support.lab_app`. `settings` are the arguments of lab_app.build."""
    return {"LANES_TEST": json.dumps(settings), **more}


class Worker(Process):
    """`settings` are the arguments of lab_app.build; `name` identifies the worker in the history."""

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
        mingles: bool = False,
    ) -> None:
        command = [*CELERY, "worker", "--loglevel", "INFO", "--pool", pool, "--concurrency", str(slots)]
        command += ["--hostname", f"{name}@test", *arguments]
        if not mingles:  # saves each worker a second
            command.append("--without-mingle")
        super().__init__(name, command, directory, environment(settings, {"LANES_WORKER": name, **(env or {})}))
        if is_awaited:
            self.tells(READY)

    def children(self) -> list[int]:
        return [child.pid for child in psutil.Process(self.pid).children(recursive=True)]
