"""`revoke(terminate=True)`, such as Flower's button: which messages are to end, and who asked for it.

Guarantees that a message whose end was asked for is buried with the signal, the asker and the worker in its error, as
long as a worker is up that received the command. Who asks through an app with lanes is named; another program's name is
not part of Celery's command.
"""

from __future__ import annotations

import os
import signal as signals
import socket
import sys
from pathlib import Path
from typing import Any

from celery.app.control import Control
from celery.worker import state

#: As many as Celery keeps of revoked tasks.
MOST = state.REVOKES_MAX
_LONGEST_NAME = 200

#: Of `celery`, those that end tasks. (In Flower's handlers there is no click context.)
_COMMANDS = ("flower", "control", "shell", "worker")

_asked_by: dict[str, str] = {}


class NamingControl(Control):
    """`app.control`: its revokes name the program that asks."""

    def broadcast(self, command: str, arguments: dict[str, Any] | None = None, *others: Any, **options: Any) -> Any:
        if command in ("revoke", "terminate"):
            arguments = {**(arguments or {}), "asked_by": _this_program()}
        return super().broadcast(command, arguments, *others, **options)


def note(task_ids: list[str], asked_by: object) -> None:
    """The end of these messages was asked for, whether this worker holds them or not."""
    name = str(asked_by or "an unnamed program")[:_LONGEST_NAME]
    for task_id in task_ids:
        _asked_by[task_id] = "".join(each if each.isprintable() else "?" for each in name)
    while len(_asked_by) > MOST:
        del _asked_by[next(iter(_asked_by))]


def forget(task_id: str) -> None:
    """It was replayed since."""
    _asked_by.pop(task_id, None)


def is_requested(task_id: str) -> bool:
    return task_id in _asked_by


def problem_of(task_id: str, hostname: str, signum: int | None = None) -> dict[str, Any]:
    """What the dead letters say about it. Without a signal: it was not running."""
    how = f"while it ran, with {signals.Signals(signum).name}" if signum else "before it started"
    asker = _asked_by.get(task_id, "an unnamed program")
    return {"type": "Terminated", "message": f"terminated {how}; asked by {asker}, carried out by {hostname}"}


def _this_program() -> str:
    # No other argument is named: it may hold a password.
    command = next((each for each in sys.argv[1:] if each in _COMMANDS), None)
    name = command or Path(sys.argv[0]).name or "python"
    return f"{name} (pid {os.getpid()} on {socket.gethostname()})"
