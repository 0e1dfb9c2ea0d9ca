"""`revoke(terminate=True)`, for example Flower's button: which messages to terminate, and the program that asked.

Guarantees that a terminated message is buried with the signal, the program and the worker in its error, as long as a
worker that received the command is running. Does not name a program that uses an app without lanes: its name is not
part of Celery's command.
"""

from __future__ import annotations

import os
import signal as signals
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from celery.app.control import Control
from celery.worker import state
from kombu.utils.functional import maybe_list

from celery_lanes.transport.publish import timer_of

#: The number of revoked tasks that Celery keeps.
MAX_REQUESTS = state.REVOKES_MAX
_MAX_NAME_LENGTH = 200

#: The commands of `celery` that can terminate tasks. (Flower's handlers have no click context.)
_COMMANDS = ("flower", "control", "shell", "worker")

_asked_by: dict[str, str] = {}


class LanesControl(Control):
    """`app.control`. Adds the name of the program to its revokes, and removes the timers of what it revokes, also if
    no worker runs.
    """

    def broadcast(self, command: str, arguments: dict[str, Any] | None = None, *others: Any, **options: Any) -> Any:
        if command in ("revoke", "terminate"):
            arguments = {**(arguments or {}), "asked_by": _this_program()}
            cancel_timers(self.app, maybe_list(arguments.get("task_id")) or [])
        return super().broadcast(command, arguments, *others, **options)


def cancel_timers(app: Any, task_ids: Iterable[str]) -> None:
    """Messages with an eta that are not due yet are removed. Raises RedisError."""
    for task_id in task_ids:
        app.lanes.store.cancel(*timer_of(task_id))


def note(task_ids: list[str], asked_by: object) -> None:
    """Note that these messages are to be terminated, whether this worker holds them or not."""
    name = str(asked_by or "an unnamed program")[:_MAX_NAME_LENGTH]
    for task_id in task_ids:
        _asked_by[task_id] = "".join(each if each.isprintable() else "?" for each in name)
    while len(_asked_by) > MAX_REQUESTS:
        del _asked_by[next(iter(_asked_by))]


def forget(task_id: str) -> None:
    """Called when the message was replayed after the request."""
    _asked_by.pop(task_id, None)


def is_requested(task_id: str) -> bool:
    return task_id in _asked_by


def problem_of(task_id: str, hostname: str, signum: int | None = None) -> dict[str, Any]:
    """The problem under which a terminated message is buried. `signum` is None if it was not running."""
    how = f"while it ran, with {signals.Signals(signum).name}" if signum else "before it started"
    asker = _asked_by.get(task_id, "an unnamed program")
    return {"type": "Terminated", "message": f"terminated {how}; asked by {asker}, carried out by {hostname}"}


def _this_program() -> str:
    # Other arguments are left out: one may be a password.
    command = next((each for each in sys.argv[1:] if each in _COMMANDS), None)
    name = command or Path(sys.argv[0]).name or "python"
    return f"{name} (pid {os.getpid()} on {socket.gethostname()})"
