"""Checks timers: each one that was set has fired once, and none before its time. Those of updates that were buried were
never set. A run may be repeated, as that of an update; but it is the same message then. Of updates that ran together,
the first one has set them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from chaos.check.violation import Violation
from chaos.evidence.records import Evidence, TimerRun
from chaos.systems.timers import KIND, names

#: Times are rounded to milliseconds, and the begin is recorded after the clock of Redis was read.
ROUNDING_S = 0.002


def lost(evidence: Evidence) -> list[Violation]:
    """Timers that no run has ended, or whose message Telegram has not got, of updates that are not buried."""
    sent = evidence.messages(KIND)
    ended = {run.name for run in evidence.timers if run.has_ended and run.name in sent}
    not_first = {update for run in evidence.runs for update in run.group[1:]}
    return [
        Violation(f"the timer {name} has not run to its end", (update,))
        for update in evidence.expected
        if update not in not_first and update not in (evidence.buried or ())
        for name in names(update, evidence.timers_each)
        if name not in ended
    ]


def wrong(evidence: Evidence) -> list[Violation]:
    """Timers that fired twice, too early, or although their update was buried."""
    by_name: dict[str, list[TimerRun]] = defaultdict(list)
    for run in evidence.timers:
        by_name[run.name].append(run)
    violations = []
    for name, runs in by_name.items():
        update = int(name.partition(".")[0])
        reasons = _reasons(runs, is_buried=update in (evidence.buried or ()))
        violations += [Violation(f"the timer {name} {reason}", (update,)) for reason in reasons]
    return violations


def _reasons(runs: Collection[TimerRun], *, is_buried: bool) -> list[str]:
    reasons = []
    if len({run.id for run in runs}) > 1:
        reasons.append("fired more than once")
    if is_buried:
        reasons.append("fired, but its update is buried")
    early_s = max(max(run.from_s, run.due_s) - run.at_s for run in runs)
    if early_s > ROUNDING_S:
        reasons.append(f"fired {early_s:.3f} s early")
    return reasons


def lateness_s(evidence: Evidence) -> list[float]:
    """From the time of each timer to the begin of its first run, sorted."""
    first: dict[str, float] = {}
    for run in evidence.timers:
        first[run.name] = min(first.get(run.name, run.at_s - run.due_s), run.at_s - run.due_s)
    return sorted(first.values())
