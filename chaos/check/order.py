"""Checks that the updates of a key ran in order, one at a time, and completely. Pure functions.

An update is *finished* at the first end of a run that still held its lease. Poison, which never ends, is finished at
the end of its last run; so is an update that was terminated and buried. For every key this finds updates that never
finished (lost); updates that started before an earlier one had finished, or again after a later one had started (out
of order); and two runs at the same time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from chaos.check.violation import Violation
from chaos.evidence.aof import FOREVER
from chaos.evidence.records import HandlerRun
from chaos.systems import poison


def finished(runs: Iterable[HandlerRun], terminated: frozenset[int] = frozenset()) -> dict[int, float]:
    """The time at which each update was finished. `terminated` updates were buried on purpose."""
    ends: dict[int, float] = {}
    for run in runs:
        for update in run.group:
            if run.is_poison or update in terminated:
                ends[update] = max(ends.get(update, 0.0), run.busy_until_s)
            elif run.outcome == "end" and run.end_s <= run.valid_until_s:
                ends[update] = min(ends.get(update, FOREVER), run.end_s)
    return ends


def lost(
    expected: Iterable[int],
    ends: dict[int, float],
    buried: frozenset[int] | None,
    terminated: frozenset[int] = frozenset(),
) -> list[Violation]:
    """Buried poison may never have run: its worker may have died before the first line, each time. The same holds for
    terminated updates.
    """
    gone = terminated | {update for update in buried or () if poison.is_poison(update)}
    return [Violation(f"{u} never finished", (u,)) for u in expected if u not in ends and u not in gone]


def out_of_order(runs: Iterable[HandlerRun], ends: dict[int, float]) -> list[Violation]:
    return [violation for key, of_key in sorted(_by_key(runs).items()) for violation in _disorder(key, of_key, ends)]


def overlaps(runs: Iterable[HandlerRun]) -> list[Violation]:
    return [violation for key, of_key in sorted(_by_key(runs).items()) for violation in _beside(key, of_key)]


def _by_key(runs: Iterable[HandlerRun]) -> dict[str, list[HandlerRun]]:
    by_key: dict[str, list[HandlerRun]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.start_s):
        for key in run.keys:
            by_key[key].append(run)
    return by_key


def _disorder(key: str, runs: Sequence[HandlerRun], ends: dict[int, float]) -> list[Violation]:
    """Update numbers must not decrease in the order of starts, and each start must follow the end of the update before
    it.
    """
    violations = []
    latest: HandlerRun | None = None
    for run in runs:
        if latest is not None and run.update < latest.update:
            text = f"{key}: {run.update} started at {run.start_s:.3f}, after {latest.update} had started"
            violations.append(Violation(text, (run.update, latest.update)))
        elif latest is not None and run.update > latest.update and ends.get(latest.update, FOREVER) > run.start_s:
            text = f"{key}: {run.update} started at {run.start_s:.3f}, before {latest.update} was finished"
            violations.append(Violation(text, (latest.update, run.update)))
        if latest is None or run.update >= latest.update:
            latest = run
    return violations


def _beside(key: str, runs: Sequence[HandlerRun]) -> list[Violation]:
    violations = []
    busy: HandlerRun | None = None
    for run in runs:
        if busy is not None and run.start_s < busy.busy_until_s:
            text = (
                f"{key}: {run.update} started at {run.start_s:.3f} in process {run.pid}, "
                f"while {busy.update} ran in {busy.pid} until {busy.busy_until_s:.3f}"
            )
            violations.append(Violation(text, (busy.update, run.update)))
        if busy is None or run.busy_until_s > busy.busy_until_s:
            busy = run
    return violations
