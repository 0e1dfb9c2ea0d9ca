"""What the tasks of lab_app.py and the bot of bots.py wrote down, and what must be true of it.

Promises a failure that names what was lost, run again without a reason, out of order or beside another of its lane.
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
    """`what` happened to a message or update: start, end, raise, or a word of the test's own."""

    what: str
    id: Any
    attempt: int
    pid: int
    worker: str


def record(file: str, event: Event) -> None:
    """One write at the end of one file: whole, and in the order of all processes."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{event.what} {event.id} {event.attempt} {event.pid} {event.worker}\n".encode())
    finally:
        os.close(descriptor)


def read(file: Path, id_of: Callable[[str], Any] = str) -> list[Event]:
    text = file.read_text() if file.exists() else ""
    lines = text[: text.rfind("\n") + 1].splitlines()  # the last line may be half written
    return [
        Event(what, id_of(name), int(attempt), int(pid), worker)
        for what, name, attempt, pid, worker in map(str.split, lines)
    ]


def ids(events: Sequence[Event], what: str) -> list[Any]:
    """The messages or updates that this happened to, in order."""
    return [event.id for event in events if event.what == what]


def check_once_each(events: Sequence[Event], lanes: Lanes) -> None:
    """Each ran exactly once, in the order of its lanes and alone in them."""
    started = ids(events, "start")
    twice = [each for each, times in Counter(started).items() if times > 1]
    assert not twice, f"ran twice: {twice[:5]}"
    assert set(started) <= set(lanes), f"not published: {list(set(started) - set(lanes))[:5]}"
    check_order(events, lanes)


def check_order(events: Sequence[Event], lanes: Lanes, *, killed: Collection[str] = ()) -> None:
    """Each ran to its end, in the order of its lanes and alone in them; maybe more than once.

    It may run again until the next one has started. What ran in a worker that was `killed` ended there and then.
    """
    lost = sorted(set(lanes) - set(ids(events, "end")))
    assert not lost, f"never ran to its end: {lost[:5]} and {len(lost)} in all"
    lines: dict[str, list[Any]] = {}
    for each, keys in lanes.items():
        for key in dict.fromkeys(keys):
            lines.setdefault(key, []).append(each)
    for key, line in lines.items():
        members = set(line)
        _check_lane(key, line, [event for event in events if event.id in members], killed)


def _check_lane(key: str, line: Sequence[Any], events: Sequence[Event], killed: Collection[str]) -> None:
    place = {each: n for n, each in enumerate(line)}
    front, ended = -1, -1  # the places of the last one that started, and of the last one that ended
    running: Event | None = None
    for event in events:
        if event.what == "start":
            here = place[event.id]
            assert running is None or running.worker in killed, f"{event} in {key} beside {running}"
            assert here in (front, ended + 1), f"{event} in {key}: {line[front]} had started, {line[ended]} ended"
            assert here >= front, f"{event} in {key} after {line[front]} had started"
            front, running = here, event
        elif event.what in ("end", "raise"):
            assert running is not None, f"{event} in {key}, where nothing ran"
            assert (running.id, running.pid) == (event.id, event.pid), f"{event} in {key} of {running}"
            running = None
            ended = place[event.id] if event.what == "end" else ended
