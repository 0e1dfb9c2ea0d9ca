"""A model of a message's journal, used by the model of the lanes (lanes.py).

It compares fences only for equality.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from celery_lanes.protocol import Begun, Kind, Noted
from tests.lanes.protocol.lua.model.state import CLOCK, FENCES_FROM


class Note(NamedTuple):
    state: str
    by: int
    what: str
    outcome: str = ""


@dataclass
class ModelJournal:
    notes: dict[str, Note] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    times_uncertain: int = 0
    #: (fence of an interrupted run, position) -> a call that it, or a run before it, has left
    left: dict[tuple[int, str], Note] = field(default_factory=dict)

    def begin(self, fence: int, position: str, what: str) -> Begun:
        series, number = parts(position)
        found = self.notes.get(position)
        if found is None:
            begun = Begun(Noted.BEGUN)
        elif found.what != what:
            begun = Begun(Noted.DIFFERENT, found.what.encode())
            for other in [*self.notes]:
                other_series, other_number = parts(other)
                if other_series == series and other_number >= number and self.notes[other].by != fence:
                    del self.notes[other]
            self.last[series] = 0
        elif found.state == "done":
            return Begun(Noted.DONE, found.outcome.encode())
        elif found.state == "refused" and self.last.get(series, 0) > number:
            return Begun(Noted.REFUSED, found.outcome.encode())
        elif found.state == "doubtful" or (found.state == "begun" and found.by != fence):
            begun = Begun(Noted.UNCERTAIN)
            self.times_uncertain += found.by != fence
        else:
            begun = Begun(Noted.BEGUN)
        self.notes[position] = Note("doubtful" if begun.noted is Noted.UNCERTAIN else "begun", fence, what)
        self.last[series] = max(self.last.get(series, 0), number)
        return begun

    def end(self, fence: int, position: str, what: str, kind: Kind, outcome: str) -> None:
        if kind is not Kind.UNDONE:
            self.notes[position] = Note(kind.value, fence, what, outcome)
        elif position in self.notes and self.notes[position][:2] == ("begun", fence):
            del self.notes[position]

    def leave(self, fence: int) -> None:
        """The run with this fence was interrupted: the next one does not continue its calls, and those of runs before
        it.
        """
        self.left |= {(fence, position): note for position, note in self.notes.items() if note.state != "refused"}
        self.notes, self.last = {}, {}

    def end_left(self, fence: int, position: str, what: str) -> bool:
        """True if an interrupted run has left the call, which is now done."""
        found = self.left.get((fence, position))
        if found is None or found.state != "begun":
            return False
        self.left[fence, position] = Note("done", fence, what)
        return True

    def fields(self) -> dict[str, str]:
        """The expected fields in Redis."""
        noted = {
            position: f"{note.state} {_short(note.by)} {note.what} {note.outcome}"
            for position, note in self.notes.items()
        }
        for (fence, position), note in self.left.items():
            noted[f"{fence} {position}"] = f"{note.state} {_short(note.by)} {note.what} {note.outcome}"
        return noted | {f"{series}last": str(number) for series, number in self.last.items()}


def parts(position: str) -> tuple[str, int]:
    """The series and the number of a position."""
    found = re.fullmatch(r"(.*?)(\d+)", position)
    assert found
    return found[1], int(found[2])


def _short(fence: int) -> int:
    """A fence as a State has it."""
    return fence - FENCES_FROM if fence >= FENCES_FROM else CLOCK
