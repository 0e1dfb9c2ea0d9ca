"""Checks the calls that Telegram received against the leases of their runs. Pure functions.

A call is stale if its fence had been taken back before it arrived, or if another run on one of its keys had already
started. A stale call is found unless it arrived within ARRIVES_WITHIN_S of that moment: a call that was sent in time
may take this long to arrive.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable

from chaos.check.violation import Violation
from chaos.evidence.records import Effect, Evidence, HandlerRun

ARRIVES_WITHIN_S = 0.25


def stale(evidence: Evidence) -> list[Violation]:
    runs = {run.name: run for run in evidence.all_runs}
    starts = _starts(evidence.all_runs)
    violations = []
    for effect in (*evidence.effects, *evidence.edits):
        run = runs.get(effect.run or "")
        why = (
            "does not name its run" if run is None else _why_stale(effect, run, evidence) or _late(effect, run, starts)
        )
        if why:
            text = f"{effect.text or effect.update}: its message {effect.number}, received at {effect.at_s:.3f}, {why}"
            violations.append(Violation(text, (effect.update,)))
    return violations


def _why_stale(effect: Effect, run: HandlerRun, evidence: Evidence) -> str | None:
    if evidence.holds is None:
        return None
    hold = evidence.holds.get((run.id, effect.fence or ""))
    if hold is None or effect.fence != run.fence:
        return f"came with the fence {effect.fence}, which was never given to its run"
    if effect.at_s > hold.until_s + ARRIVES_WITHIN_S:
        return f"came with a fence that was taken back at {hold.until_s:.3f}"
    return None


def _starts(runs: Iterable[HandlerRun]) -> dict[str, list[tuple[float, str, int]]]:
    starts: dict[str, list[tuple[float, str, int]]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.start_s):
        for key in run.keys:
            starts[key].append((run.start_s, run.name, run.update))
    return starts


def _late(effect: Effect, run: HandlerRun, starts: dict[str, list[tuple[float, str, int]]]) -> str | None:
    """The reason if the next run on one of its keys had started."""
    for key in run.keys:
        place = bisect_right(starts[key], (run.start_s, run.name, run.update))
        if place < len(starts[key]):
            next_s, _, update = starts[key][place]
            if effect.at_s > next_s + ARRIVES_WITHIN_S:
                return f"came after {update} had started on {key} at {next_s:.3f}"
    return None
