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
    BroadcastFindings,
    Evidence,
    InjectedFault,
    edits_in,
    effects_in,
    groups_in,
    messages_of_broadcast,
    payments_in,
    runs_in,
    shown_in,
    timers_in,
)
from chaos.systems.users import Conversation

FILE, HISTORY, AOF_COPY, MONITOR = "findings.json", "history.jsonl", "aof", "monitor"


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
    last_fired: dict[str, int] = field(default_factory=dict)
    calm_at_s: float = 0.0
    broadcasts: dict[str, dict[str, Any]] = field(default_factory=dict)
    promised: list[str] = field(default_factory=list)
    main_broadcast: str = ""
    conversations: list[dict[str, Any]] = field(default_factory=list)
    open_questions: list[str] = field(default_factory=list)
    malformed: list[int] = field(default_factory=list)  #: numbers of Telegram that no update has
    orders: list[int] = field(default_factory=list)

    def save(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps(asdict(self)))


def load(folder: Path) -> Findings:
    return Findings(**json.loads((folder / FILE).read_text()))


def evidence(folder: Path) -> Evidence:
    """The evidence of a run, from its folder."""
    found = load(folder)
    faults = [InjectedFault(**{**fault, "pids": tuple(fault["pids"])}) for fault in found.faults]
    book = book_in(folder / AOF_COPY) if found.lease_s is None else None
    records = [json.loads(line) for line in (folder / HISTORY).read_text().splitlines()]
    all_runs = runs_in(records, faults, book.holds if book else None, found.lease_s or 0.0)
    runs = [run for run in all_runs if not run.message]
    groups = groups_in(runs)
    conversations = [Conversation(**each) for each in found.conversations]
    not_of_the_feed = {*found.malformed, *(update for each in conversations for update in each.updates)}

    def whole(firsts: Iterable[int]) -> tuple[int, ...]:
        """A group is terminated and buried under the id of its first update."""
        return tuple(update for first in firsts for update in groups.get(first, (first,)))

    return Evidence(
        runs=runs,
        effects=[*effects_in(found.calls), *payments_in(records, all_runs)],
        faults=[replace(fault, updates=whole(fault.updates)) for fault in faults],
        expected=[update for update in range(1, found.sent + 1) if update not in not_of_the_feed],
        buried=None if found.buried is None else frozenset(whole(found.buried)),
        book=book,
        sessions=found.sessions,
        parts={int(pid): name for pid, name in found.parts.items()},
        others=[run for run in all_runs if run.message],
        timers=timers_in(records),
        timers_each=found.timers_each,
        last_fired=found.last_fired,
        calm_at_s=found.calm_at_s,
        broadcasts={id_: _broadcast(**found) for id_, found in found.broadcasts.items()},
        promised=found.promised,
        main_broadcast=found.main_broadcast,
        conversations=conversations,
        open_questions=found.open_questions,
        edits=edits_in(found.calls),
        shown=shown_in(found.calls),
        orders=found.orders,
        news=messages_of_broadcast(found.calls),
    )


def _broadcast(total: int, counts: dict[str, int], missed: dict[str, str]) -> BroadcastFindings:
    return BroadcastFindings(total, counts, {int(chat): reason for chat, reason in missed.items()})
