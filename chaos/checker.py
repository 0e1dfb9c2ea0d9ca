"""Reads a history and counts what must not be: pure, and tested with bad histories made by hand.

An update is *finished* at its first end (a poison one at its last raise). Promises to find, for every key: an update
that never finished (lost); one that started before an earlier one had finished, or again after a later one had started
(out of order); two runs at the same time (overlap). A run of a process that was frozen for longer than a lease is no
longer a run from the moment its lease was over: whoever took over is in the right.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

FOREVER = float("inf")


@dataclass(frozen=True)
class Freeze:
    """A process that stood still, monotonic seconds."""

    pid: int
    from_s: float
    to_s: float


@dataclass
class Run:
    """One time that a handler ran. It ends when it says so, or when its process was killed."""

    update: int
    keys: tuple[str, ...]
    pid: int
    start_s: float
    end_s: float = FOREVER
    outcome: str = "died"  # or "end", "raise"
    leased_until_s: float = FOREVER  # from then on somebody else may have it

    @property
    def busy_until_s(self) -> float:
        return min(self.end_s, self.leased_until_s)


@dataclass
class Verdict:
    """Each violation as a sentence; and the counts that are no violations."""

    lost: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    overlaps: list[str] = field(default_factory=list)
    updates: int = 0
    runs: int = 0
    duplicates: int = 0  # ends beyond the first: at least once is what is promised

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.out_of_order or self.overlaps)


def check(
    records: Iterable[dict[str, Any]],
    *,
    expected: Iterable[int],
    killed: dict[int, float],
    freezes: Sequence[Freeze],
    lease_s: float,
) -> Verdict:
    """Judge a history. `expected` are all update ids that were sent, `killed` says when a process died."""
    runs = _runs(records, killed)
    _end_leases(runs, freezes, lease_s)
    finished = _finished(runs)
    verdict = Verdict(updates=len(finished), runs=len(runs))
    verdict.lost = [f"update {update} never finished" for update in expected if update not in finished]
    verdict.duplicates = sum(n - 1 for n in Counter(run.update for run in runs if run.outcome == "end").values())
    for key, of_key in sorted(_by_key(runs).items()):
        verdict.out_of_order += _out_of_order(key, of_key, finished)
        verdict.overlaps += _overlaps(key, of_key)
    return verdict


def _by_key(runs: list[Run]) -> dict[str, list[Run]]:
    by_key: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.start_s):
        for key in run.keys:
            by_key[key].append(run)
    return by_key


def _runs(records: Iterable[dict[str, Any]], killed: dict[int, float]) -> list[Run]:
    runs: dict[str, Run] = {}
    for record in records:
        if record["what"] == "start":
            runs[record["run"]] = Run(record["id"], tuple(record["keys"]), record["pid"], record["at_s"])
        else:
            runs[record["run"]].end_s = record["at_s"]
            runs[record["run"]].outcome = record["what"]
    for run in runs.values():
        if run.end_s == FOREVER:
            run.end_s = killed.get(run.pid, FOREVER)
    return list(runs.values())


def _end_leases(runs: list[Run], freezes: Sequence[Freeze], lease_s: float) -> None:
    """A worker renews every third of a lease, so that one frozen for two thirds may have lost it."""
    for run in runs:
        for freeze in freezes:
            began_in_run = run.pid == freeze.pid and run.start_s <= freeze.from_s <= run.end_s
            if began_in_run and freeze.to_s - freeze.from_s >= lease_s / 2:
                run.leased_until_s = min(run.leased_until_s, freeze.from_s)


def _finished(runs: list[Run]) -> dict[int, float]:
    """When each update was first done: its first end, or for one that only ever raised, its last raise."""
    ends: dict[int, float] = {}
    raises: dict[int, float] = {}
    for run in runs:
        if run.outcome == "end":
            ends[run.update] = min(ends.get(run.update, FOREVER), run.end_s)
        elif run.outcome == "raise":
            raises[run.update] = max(raises.get(run.update, 0.0), run.end_s)
    return {**raises, **ends}


def _out_of_order(key: str, runs: list[Run], finished: dict[int, float]) -> list[str]:
    """In the order of their starts, updates may only grow, and each must have waited for the one before it."""
    problems = []
    latest: Run | None = None
    for run in runs:
        if latest is not None and run.update < latest.update:
            problems.append(f"{key}: {run.update} started at {run.start_s:.3f}, after {latest.update} had started")
        elif latest is not None and run.update > latest.update and finished.get(latest.update, FOREVER) > run.start_s:
            problems.append(f"{key}: {run.update} started at {run.start_s:.3f}, before {latest.update} was finished")
        if latest is None or run.update >= latest.update:
            latest = run
    return problems


def _overlaps(key: str, runs: list[Run]) -> list[str]:
    problems = []
    busy: Run | None = None
    for run in runs:
        if busy is not None and run.start_s < busy.busy_until_s:
            problems.append(
                f"{key}: {run.update} started at {run.start_s:.3f} in process {run.pid}, "
                f"while {busy.update} ran in {busy.pid} until {busy.busy_until_s:.3f}"
            )
        if busy is None or run.busy_until_s > busy.busy_until_s:
            busy = run
    return problems
