"""The event history that the tasks of the tests write, and checks on it.

A failed check names the message or update that was lost, that ran again without a reason, out of order, or at the
same time as another one of its lane.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: message or update -> the keys of its lanes, in the order of publishing
Lanes = Mapping[Any, Sequence[str]]


@dataclass(frozen=True)
class Event:
    """An event of a message or update. `what` is start, end, raise, or a word that a test defines."""

    what: str
    id: Any
    attempt: int
    pid: int
    worker: str


def record(file: str, event: Event) -> None:
    """Append one line with a single write, so that lines of several processes do not mix and keep their order."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{event.what} {event.id} {event.attempt} {event.pid} {event.worker}\n".encode())
    finally:
        os.close(descriptor)


def read(file: Path, id_of: Callable[[str], Any] = str) -> list[Event]:
    text = file.read_text() if file.exists() else ""
    lines = text[: text.rfind("\n") + 1].splitlines()  # the last line may be incomplete
    return [
        Event(what, id_of(name), int(attempt), int(pid), worker)
        for what, name, attempt, pid, worker in map(str.split, lines)
    ]


def ids(events: Sequence[Event], what: str) -> list[Any]:
    """The ids of the messages or updates with this event, in order."""
    return [event.id for event in events if event.what == what]


def check_once_each(events: Sequence[Event], lanes: Lanes) -> None:
    """Each ran exactly once, in lane order, and never at the same time as another one of its lanes."""
    started = ids(events, "start")
    twice = [each for each, times in Counter(started).items() if times > 1]
    assert not twice, f"ran twice: {twice[:5]}"
    assert set(started) <= set(lanes), f"not published: {list(set(started) - set(lanes))[:5]}"
    check_order(events, lanes)


def check_order(events: Sequence[Event], lanes: Lanes, *, killed: Collection[str] = ()) -> None:
    """Each ran to its end, possibly more than once, in lane order, and never at the same time as another of its lanes.

    It may run again until the next one of the lane has started. A run in a `killed` worker ended when the worker died.
    """
    lost = sorted(set(lanes) - set(ids(events, "end")))
    assert not lost, f"never ran to their end: {len(lost)}, the first ones {lost[:5]}"
    ids_by_key: dict[str, list[Any]] = {}
    for each, keys in lanes.items():
        for key in dict.fromkeys(keys):
            ids_by_key.setdefault(key, []).append(each)
    for key, lane in ids_by_key.items():
        members = set(lane)
        _check_lane(key, lane, [event for event in events if event.id in members], killed)


def _check_lane(key: str, lane: Sequence[Any], events: Sequence[Event], killed: Collection[str]) -> None:
    position = {each: n for n, each in enumerate(lane)}
    started, ended = -1, -1  # the positions of the last message that started and of the last that ended
    running: Event | None = None
    for event in events:
        if event.what == "start":
            here = position[event.id]
            assert running is None or running.worker in killed, f"{event} in {key} while {running}"
            assert here in (started, ended + 1), f"{event} in {key}: {lane[started]} had started, {lane[ended]} ended"
            assert here >= started, f"{event} in {key} after {lane[started]} had started"
            started, running = here, event
        elif event.what in ("end", "raise"):
            assert running is not None, f"{event} in {key}, but nothing was running"
            assert (running.id, running.pid) == (event.id, event.pid), f"{event} in {key}, but {running} was running"
            running = None
            ended = position[event.id] if event.what == "end" else ended
