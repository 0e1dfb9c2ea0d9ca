"""What the tasks of app.py wrote down, and what must be true of it.

Promises a failure that names the messages that were lost, run twice, out of order or beside another of their lane.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Event:
    """`what` happened to the message `id`, in which process of which worker."""

    what: str
    id: str
    pid: int
    worker: str


def read(file: Path) -> list[Event]:
    text = file.read_text() if file.exists() else ""
    lines = text[: text.rfind("\n") + 1].splitlines()  # who looks while one is written may see a part of it
    return [Event(what, message_id, int(pid), worker) for what, message_id, pid, worker in map(str.split, lines)]


def ids(events: Sequence[Event], what: str) -> list[str]:
    """The messages that this happened to, in order."""
    return [event.id for event in events if event.what == what]


def check_once_each(events: Sequence[Event], lanes: Mapping[str, Sequence[str]]) -> None:
    """Each of these messages (id -> its lane keys, in the order of publishing) ran once, in order, alone in its lanes.

    `what` may be anything between start and end.
    """
    started, ended = ids(events, "start"), ids(events, "end")
    twice = [message_id for message_id, times in Counter(started).items() if times > 1]
    assert not twice, f"ran twice: {twice[:5]}"
    assert set(started) == set(ended) == set(lanes), f"never ran: {sorted(set(lanes) - set(ended))[:5]}"
    check_order(events, lanes)


def check_order(events: Sequence[Event], lanes: Mapping[str, Sequence[str]]) -> None:
    """Nothing overlapped in a lane, and none started before the ones in front of it had ended."""
    lines: dict[str, list[str]] = {}
    lanes = {message_id: list(dict.fromkeys(keys)) for message_id, keys in lanes.items()}
    for message_id, keys in lanes.items():
        for key in keys:
            lines.setdefault(key, []).append(message_id)
    place = dict.fromkeys(lines, 0)
    holder: dict[str, str] = {}
    for event in events:
        for key in lanes.get(event.id, ()):
            if event.what == "start":
                assert holder.get(key, event.id) == event.id, f"{event.id} started beside {holder[key]} in lane {key}"
                assert lines[key][place[key]] == event.id, f"{event.id} started before {lines[key][place[key]]}"
                holder[key] = event.id
            elif event.what == "end":
                assert holder.pop(key, None) == event.id, f"{event.id} ended in lane {key}, where it did not run"
                place[key] += 1
