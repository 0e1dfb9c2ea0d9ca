"""`revoke(terminate=True)`, for example Flower's button: which messages to terminate, and the program that asked.

Guarantees that a terminated message is buried with the signal, the program and the worker in its error, as long as a
worker runs that received the command, or that learned of it from another worker when it started. Does not name a
program that uses an app without lanes: its name is not part of Celery's command.
"""

from __future__ import annotations

import os
import signal as signals
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from time import monotonic, time
from typing import Any, NamedTuple

from celery.app.control import Control, Inspect
from celery.worker import state
from kombu.utils.functional import maybe_list
from kombu.utils.objects import cached_property

from celery_lanes.transport.publish import timer_of

#: The number of revoked tasks that Celery keeps.
MAX_REQUESTS = state.REVOKES_MAX
_MAX_NAME_LENGTH = 200

#: The commands of `celery` that can terminate tasks. (Flower's handlers have no click context.)
_COMMANDS = ("flower", "control", "shell", "worker")


class _Revoke(NamedTuple):
    """When the request came, by this machine's monotonic clock, and the program that asked to terminate; None: it only
    revoked.
    """

    at_s: float
    asked_by: str | None


_revokes: dict[str, _Revoke] = {}


class LanesControl(Control):
    """`app.control`. Adds the name of the program to its revokes, and removes the timers of what it revokes, also if
    no worker runs.
    """

    def broadcast(self, command: str, arguments: dict[str, Any] | None = None, *others: Any, **options: Any) -> Any:
        if command in ("revoke", "terminate"):
            arguments = {**(arguments or {}), "asked_by": _this_program()}
            cancel_timers(self.app, maybe_list(arguments.get("task_id")) or [])
        return super().broadcast(command, arguments, *others, **options)

    @cached_property
    def inspect(self) -> Any:
        return self.app.subclass_with_self(LanesInspect, reverse="control.inspect")


class LanesInspect(Inspect):
    """`app.control.inspect`. A worker that starts says hello to the others: they exchange the revoked ids."""

    def hello(self, from_node: str, revoked: Any = None) -> Any:
        replies = self._request("hello", from_node=from_node, revoked=revoked, revokes=told())
        for reply in (replies or {}).values():
            learn((reply or {}).get("revokes"))
        return replies


def cancel_timers(app: Any, task_ids: Iterable[str]) -> None:
    """Messages with an eta that are not due yet are removed. Raises RedisError."""
    for task_id in task_ids:
        app.lanes.store.cancel(*timer_of(task_id))


def note(task_ids: list[str], asked_by: object, terminate: bool) -> None:
    """Note that these messages are revoked, whether this worker holds them or not."""
    asker = _printable(asked_by) if terminate else None
    for task_id in task_ids:
        _add(task_id, _Revoke(monotonic(), asker))


def told() -> dict[str, list[Any]]:
    """This worker's revokes, for other workers: for each the program that asked, and when (Unix time)."""
    elapsed_s = time() - monotonic()
    known = [each for each in _revokes if each in state.revoked]
    return {each: [_revokes[each].asked_by, _revokes[each].at_s + elapsed_s] for each in known}


def learn(revokes: dict[str, list[Any]] | None) -> None:
    """Add what `told` told in another worker. Celery passes only the ids on, as if each was revoked now."""
    elapsed_s = time() - monotonic()
    for task_id, (asked_by, unix_s) in (revokes or {}).items():
        at_s = min(unix_s - elapsed_s, monotonic())
        if task_id not in _revokes or _revokes[task_id].at_s < at_s:
            _add(task_id, _Revoke(at_s, None if asked_by is None else _printable(asked_by)))


def forget(task_id: str) -> None:
    """Called when the message was replayed after the request."""
    _revokes.pop(task_id, None)
    state.revoked.discard(task_id)


def revoked_at_s(task_id: str) -> float | None:
    """When it was revoked, by this machine's monotonic clock; None: it was not. Of ids that Celery read from a state
    file: when it read them.
    """
    if revoke := _revokes.get(task_id):
        return revoke.at_s
    stamp: float | None = state.revoked._data.get(task_id, (None,))[0]
    return stamp


def is_requested(task_id: str) -> bool:
    revoke = _revokes.get(task_id)
    return revoke is not None and revoke.asked_by is not None


def _add(task_id: str, revoke: _Revoke) -> None:
    _revokes[task_id] = revoke
    while len(_revokes) > MAX_REQUESTS:
        del _revokes[next(iter(_revokes))]


def _printable(asked_by: object) -> str:
    name = str(asked_by or "an unnamed program")[:_MAX_NAME_LENGTH]
    return "".join(each if each.isprintable() else "?" for each in name)


def problem_of(task_id: str, hostname: str, signum: int | None = None) -> dict[str, Any]:
    """The problem under which a terminated message is buried. `signum` is None if it was not running."""
    how = f"while it ran, with {signals.Signals(signum).name}" if signum else "before it started"
    revoke = _revokes.get(task_id)
    asker = (revoke and revoke.asked_by) or "an unnamed program"
    return {"type": "Terminated", "message": f"terminated {how}; asked by {asker}, carried out by {hostname}"}


def _this_program() -> str:
    # Other arguments are left out: one may be a password.
    command = next((each for each in sys.argv[1:] if each in _COMMANDS), None)
    name = command or Path(sys.argv[0]).name or "python"
    return f"{name} (pid {os.getpid()} on {socket.gethostname()})"
