"""Checks the schedules: every occurrence of the one with missed="all" was fired, and those of each ran in order, none
before its time. An occurrence whose message came twice is judged as an update (repeated_messages.py). Pure functions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from chaos.check.violation import Violation
from chaos.evidence.records import Evidence, HandlerRun
from chaos.systems.schedules import ALL, EVERY_S, KIND

#: The last outage of Redis, and the start of the workers after it.
CONTINUES_WITHIN_S = 30.0
#: Timers of the operating system may be this early.
ROUNDING_S = 0.002


def lost(evidence: Evidence) -> list[Violation]:
    """Occurrences that were fired, or had to be, and have sent no message. A run that began after the calm may be cut
    by a drill, which empties the database, or by the end.
    """
    sent, fired = fired_at(evidence), _runs(evidence)
    judged = {(name, due) for name, runs in fired.items() for due, run in runs if run.start_s < evidence.calm_at_s}
    missing = {(name, due_s) for name, due_s in judged if due_s not in sent.get(name, ())}
    for name, last_s in evidence.last_fired.items():
        first_s = min(sent.get(name, ()), default=last_s)
        expected = range(first_s, last_s + 1, EVERY_S) if name == ALL else [last_s]
        missing |= {(name, due_s) for due_s in expected if due_s not in sent.get(name, ())}
    found = [f"the schedule {name} has sent nothing at {due_s}" for name, due_s in sorted(missing)]
    stopped = [name for name, last_s in evidence.last_fired.items() if last_s < evidence.calm_at_s - CONTINUES_WITHIN_S]
    found += [f"the schedule {name} was not fired after {evidence.last_fired[name]}" for name in stopped]
    return [Violation(text, ()) for text in found]


def wrong(evidence: Evidence) -> list[Violation]:
    """Occurrences that ran before their time, or after a later one."""
    found = []
    for name, runs in _runs(evidence).items():
        for due_s, run in runs:
            if run.start_s < due_s - ROUNDING_S:
                found.append(f"the schedule {name} ran {due_s - run.start_s:.3f} s early, at {run.start_s:.3f}")
        for (before_s, _), (due_s, run) in pairwise(runs):
            if due_s < before_s:
                found.append(f"the schedule {name} ran for {due_s} at {run.start_s:.3f}, after {before_s}")
    return [Violation(text, ()) for text in found]


def fired_at(evidence: Evidence) -> dict[str, set[int]]:
    """The occurrences of each schedule whose message Telegram has got, in seconds since 1970."""
    found: dict[str, set[int]] = defaultdict(set)
    for text in evidence.messages(KIND):
        name, due_s = text.split()
        found[name].add(int(due_s))
    return found


def _runs(evidence: Evidence) -> dict[str, Sequence[tuple[int, HandlerRun]]]:
    """The runs of each schedule that had the lease, in order, each with the time at which it was due."""
    found: dict[str, list[tuple[int, HandlerRun]]] = defaultdict(list)
    for run in sorted(evidence.others, key=lambda run: run.start_s):
        kind, _, rest = run.message.partition(":")
        if kind == KIND and not run.is_late:
            due_ms, _, name = rest.partition(":")
            found[name].append((int(due_ms) // 1000, run))
    return dict(found)
