"""Tasks with lanes in Celery's eager mode (`task_always_eager`, `task.apply()`): one process, no broker, no Redis.

Guarantees that a task that another one publishes into one of its own lanes runs after it has ended, as on a worker; and
that each has a delivery, whose journal lasts over Celery's retries. Does not write to Redis, so commits change nothing.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
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
#: a key, and whether it is that of a limit
Mark = tuple[bool, str]


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
        self.running: list[tuple[str, dict[Mark, int]]] = []
        self.waiting: list[Later] = []
        self.calls: dict[str, Calls] = {}


_lanes = _Lanes()


class Later(EagerResult):
    """The result of a task that waits in its lanes. A caller of `get` runs it, after all that have waited longer."""

    def __init__(self, message_id: str, keys: Iterable[str], run: Callable[[], EagerResult]) -> None:
        super().__init__(message_id, None, PENDING)
        #: How many may run with each of its keys. A limit and a lane of the same name have nothing in common.
        self.marks = {
            (isinstance(key, Limited), str(key)): key.concurrency if isinstance(key, Limited) else 1 for key in keys
        }
        self._run = run

    def ready(self) -> bool:
        return bool(self._state != PENDING)

    def get(self, *args: Any, **kwargs: Any) -> Any:
        while self in _lanes.waiting:
            _lanes.waiting[0].run()
        _run_waiting()
        return super().get(*args, **kwargs)

    def run(self) -> None:
        _lanes.waiting.remove(self)
        ended = self.start()
        self._result, self._state, self._traceback = ended._result, ended._state, ended._traceback

    def start(self) -> EagerResult:
        _lanes.running.append((self.id, self.marks))
        try:
            return self._run()
        finally:
            _lanes.running.remove((self.id, self.marks))
            _lanes.calls.pop(self.id, None)


def run_in_lanes(message_id: str, keys: Iterable[str], run: Callable[[], EagerResult]) -> EagerResult:
    """Run a task now, or when those before it in its lanes have ended."""
    if any(message_id == other for other, _ in _lanes.running):  # a retry
        return run()
    later = Later(message_id, keys, run)
    if _first_free([*_lanes.waiting, later]) is not later:
        _lanes.waiting.append(later)
        _run_waiting()
        return later
    try:
        return later.start()
    finally:
        _run_waiting()


def _first_free(waiting: Iterable[Later]) -> Later | None:
    """The first one whose keys none before it has, and that have fewer runs than they may have."""
    running = Counter(mark for _, marks in _lanes.running for mark in marks)
    before = set[Mark]()
    for each in waiting:
        if before.isdisjoint(each.marks) and all(running[mark] < most for mark, most in each.marks.items()):
            return each
        before.update(each.marks)
    return None


def _run_waiting() -> None:
    """If one raises its error (task_eager_propagates), the others wait for the next task."""
    while found := _first_free(_lanes.waiting):
        found.run()
