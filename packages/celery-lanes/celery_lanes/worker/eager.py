"""Tasks with lanes in Celery's eager mode (`task_always_eager`, `task.apply()`): one process, no broker, no Redis.

Guarantees that a task that another one publishes into one of its own lanes runs after it has ended, as on a worker; and
that each has a delivery, whose journal lasts over Celery's retries. Does not write to Redis, so commits change nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from celery.result import EagerResult
from celery.states import PENDING

from celery_lanes.errors import LanesError
from celery_lanes.protocol import Begun, Command, Kind, Limited, Noted, Outcome, PreviousCall, Write
from celery_lanes.runtime import clock
from celery_lanes.worker.delivery import REQUEST_ATTRIBUTE, Delivery
from celery_lanes.worker.journal import Journal

#: (position, what) -> the outcome of a call that was made
Calls = dict[tuple[str, str], Begun]


class EagerJournal(Journal):
    """A journal in memory."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._numbers = {}

    def begin(self, position: str, what: str, along: Sequence[Command[Any]] = ()) -> tuple[Begun, list[Any]]:
        return self._calls.setdefault((position, what), Begun(Noted.BEGUN)), [None for _ in along]

    def end(self, position: str, what: str, kind: Kind, outcome: bytes = b"") -> None:
        ended = {Kind.DONE: Noted.DONE, Kind.REFUSED: Noted.REFUSED}.get(kind, Noted.BEGUN)
        self._calls[position, what] = Begun(ended, outcome)

    def ensure(self, what: str) -> None: ...

    def confirm(self) -> None: ...

    @property
    def is_lost(self) -> bool:
        return False

    def is_sure(self) -> bool:
        return True


class EagerDelivery(Delivery):
    """The delivery of a run in eager mode. It can be committed, without its writes. The rest needs a worker."""

    def __init__(self, task: Any) -> None:
        request = task.request
        tag = f"{request.id}#{time.time_ns() // 1000}"
        super().__init__(lanes=task.app.lanes, tag=tag, deadline_s=clock.now_s(), failed=request.retries, died=0)
        self._journal = EagerJournal(_lanes.calls.setdefault(request.id, {}))

    @property
    def listens(self) -> bool:
        return False

    @property
    def age_s(self) -> float:
        return 0.0

    def start(self) -> None:
        self.is_started = True

    def check(self) -> None: ...

    def done(self) -> None: ...

    def commit(self, writes: Iterable[Write] = (), *, skipped: bool = False) -> Outcome:
        return Outcome.DONE

    def previous_calls(self) -> list[PreviousCall]:
        return []

    def _needs_worker(self, *_: Any, **__: Any) -> Any:
        raise LanesError(
            "eager mode has no Redis, so a delivery can only be committed: test this with a worker (the fixture "
            "lanes_worker)"
        )

    retry = park = bury = release = evict = read = time_ms = following = has_made_calls = _needs_worker


def delivery_of(task: Any) -> Delivery | None:
    """The delivery of the current run, if the task runs in a lane."""
    request = task.request
    found: Delivery | None = getattr(request, REQUEST_ATTRIBUTE, None)
    if found is None and any(request.id == message_id for message_id, _ in _lanes.running):
        found = EagerDelivery(task)
        setattr(request, REQUEST_ATTRIBUTE, found)
    return found


class _Lanes(threading.local):
    """The lanes of one thread: each of its eager tasks runs there."""

    def __init__(self) -> None:
        self.running: list[tuple[str, list[str]]] = []
        self.waiting: list[Later] = []
        self.calls: dict[str, Calls] = {}


_lanes = _Lanes()


class Later(EagerResult):
    """The result of a task that waits in its lanes. A caller of `get` runs it."""

    def __init__(self, message_id: str, keys: list[str], run: Callable[[], EagerResult]) -> None:
        super().__init__(message_id, None, PENDING)
        self.keys = keys
        self._run = run

    def get(self, *args: Any, **kwargs: Any) -> Any:
        if self in _lanes.waiting:
            self.run()
        return super().get(*args, **kwargs)

    def run(self) -> None:
        _lanes.waiting.remove(self)
        ended = run_in_lanes(self.id, self.keys, self._run, waits=False)
        self._result, self._state, self._traceback = ended._result, ended._state, ended._traceback


def run_in_lanes(
    message_id: str, keys: Iterable[str], run: Callable[[], EagerResult], *, waits: bool = True
) -> EagerResult:
    """Run a task now, or when those before it in its lanes have ended."""
    own = [*keys]
    if any(message_id == other for other, _ in _lanes.running):  # a retry
        return run()
    if waits and not _is_free(own, _lanes.waiting):
        _lanes.waiting.append(Later(message_id, own, run))
        return _lanes.waiting[-1]
    _lanes.running.append((message_id, own))
    try:
        return run()
    finally:
        _lanes.running.remove((message_id, own))
        _lanes.calls.pop(message_id, None)
        _run_waiting()


def _is_free(keys: list[str], before: Iterable[Later]) -> bool:
    """True if nothing waits for one of its keys, and none has as many runs as it may have."""
    waiting, running = [each.keys for each in before], [other for _, other in _lanes.running]
    return all(
        not _how_many(key, waiting) and _how_many(key, running) < (key.concurrency if isinstance(key, Limited) else 1)
        for key in keys
    )


def _how_many(key: str, those: Iterable[list[str]]) -> int:
    """A limit and a lane of the same name have nothing in common."""
    is_limit = isinstance(key, Limited)
    return sum(any(each == key and isinstance(each, Limited) is is_limit for each in keys) for keys in those)


def _run_waiting() -> None:
    for position, each in enumerate(_lanes.waiting):
        if _is_free(each.keys, _lanes.waiting[:position]):
            each.run()  # which runs the next ones
            return
