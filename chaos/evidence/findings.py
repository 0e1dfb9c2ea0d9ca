"""The findings that must be read from the running servers at the end of a chaos run, stored next to the history.

A kept folder can be checked again later, by a newer checker, without another run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from chaos.evidence.aof import book_in
from chaos.evidence.records import (
    Evidence,
    InjectedFault,
    TimerRun,
    effects_in,
    groups_in,
    messages_of_broadcast,
    messages_of_timers,
    runs_in,
    timers_in,
)
from chaos.systems import timers

FILE, HISTORY, AOF_COPY = "findings.json", "history.jsonl", "aof"


@dataclass(frozen=True)
class Findings:
    """`lease_s` is set for a system without fences."""

    seed: int
    sent: int
    faults: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    buried: list[int] | None
    sessions: dict[str, int] | None
    lease_s: float | None
    hung: list[str]
    parts: dict[int, str]
    backlog: list[tuple[float, int]]
    drills: list[str] = field(default_factory=list)
    timers_each: int = 0
    recipients: int = 0
    results: dict[str, int] = field(default_factory=dict)
    missed: dict[int, str] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps(asdict(self)))


def load(folder: Path) -> Findings:
    return Findings(**json.loads((folder / FILE).read_text()))


def evidence(folder: Path) -> Evidence:
    """The evidence of a run, from its folder."""
    found = load(folder)
    faults = [InjectedFault(**{**fault, "pids": tuple(fault["pids"])}) for fault in found.faults]
    book = book_in(folder / AOF_COPY) if found.lease_s is None else None
    with (folder / HISTORY).open() as lines:
        runs = runs_in(map(json.loads, lines), faults, book.holds if book else None, found.lease_s or 0.0)
    groups = groups_in(runs)

    def whole(firsts: Iterable[int]) -> tuple[int, ...]:
        """A group is terminated and buried under the id of its first update."""
        return tuple(update for first in firsts for update in groups.get(first, (first,)))

    return Evidence(
        runs=runs,
        effects=effects_in(found.calls),
        faults=[replace(fault, updates=whole(fault.updates)) for fault in faults],
        expected=range(1, found.sent + 1),
        buried=None if found.buried is None else frozenset(whole(found.buried)),
        book=book,
        sessions=found.sessions,
        parts={int(pid): name for pid, name in found.parts.items()},
        timers=_timers(folder),
        timer_messages=messages_of_timers(found.calls),
        timers_each=found.timers_each,
        recipients=found.recipients,
        results=found.results,
        missed={int(chat): reason for chat, reason in found.missed.items()},
        broadcast_messages=messages_of_broadcast(found.calls),
    )


def _timers(folder: Path) -> list[TimerRun]:
    file = folder / timers.FILE
    return timers_in(map(json.loads, file.read_text().splitlines())) if file.exists() else []
