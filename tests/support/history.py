"""What the bot of bots.py wrote down, and what must be true of it.

Promises a failure that names the updates that were lost, run again without a reason, out of order or beside another of
their lane.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: update id -> the keys of its lanes, in the order of the updates
Lanes = Mapping[int, Sequence[str]]


@dataclass(frozen=True)
class Event:
    """`what` is start, end, or raise."""

    what: str
    update: int
    attempt: int
    pid: int
    worker: str


def read(file: Path) -> list[Event]:
    lines = file.read_text().splitlines() if file.exists() else []
    return [_event(*line.split()) for line in lines]


def _event(what: str, update: str, attempt: str, pid: str, worker: str) -> Event:
    return Event(what, int(update), int(attempt), int(pid), worker)


def updates(events: Sequence[Event], what: str) -> list[int]:
    """The updates that this happened to, in order."""
    return [event.update for event in events if event.what == what]


def check_once_each(events: Sequence[Event], lanes: Lanes) -> None:
    """Each update ran exactly once, in the order of its lanes and alone in them."""
    twice = [update for update, times in Counter(updates(events, "start")).items() if times > 1]
    assert not twice, f"ran twice: {twice[:5]}"
    check_order(events, lanes)


def check_order(events: Sequence[Event], lanes: Lanes, *, killed: Collection[str] = ()) -> None:
    """Each update ran to its end, in the order of its lanes and alone in them; maybe more than once.

    It may run again until the next one has started. What ran in a worker that was `killed` ended there and then.
    """
    lost = sorted(set(lanes) - set(updates(events, "end")))
    assert not lost, f"never ran to its end: {lost[:5]} and {len(lost)} in all"
    lines: dict[str, list[int]] = {}
    for update, keys in lanes.items():
        for key in dict.fromkeys(keys):
            lines.setdefault(key, []).append(update)
    for key, line in lines.items():
        members = set(line)
        _check_lane(key, line, [event for event in events if event.update in members], killed)


def _check_lane(key: str, line: Sequence[int], events: Sequence[Event], killed: Collection[str]) -> None:
    place = {update: n for n, update in enumerate(line)}
    front, ended = -1, -1  # the places of the last one that started, and of the last one that ended
    running: Event | None = None
    for event in events:
        if event.what == "start":
            here = place[event.update]
            assert running is None or running.worker in killed, f"{event} in {key} beside {running}"
            assert here in (front, ended + 1), f"{event} in {key}: {line[front]} had started, {line[ended]} ended"
            assert here >= front, f"{event} in {key} after {line[front]} had started"
            front, running = here, event
            continue
        assert running is not None, f"{event} in {key}, where nothing ran"
        assert (running.update, running.pid) == (event.update, event.pid), f"{event} in {key} of {running}"
        running = None
        ended = place[event.update] if event.what == "end" else ended
