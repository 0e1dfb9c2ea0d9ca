"""Checks the groups of updates that ran together (COLLECT). Pure functions.

Every update is in one group. A later run of a group has the same updates, or after an interrupt the same and newer
ones. The groups of a key follow each other: no update of one group lies between two of another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from chaos.check.violation import Violation
from chaos.evidence.aof import Book
from chaos.evidence.records import HandlerRun


def wrong(runs: Iterable[HandlerRun], book: Book | None) -> list[Violation]:
    in_time = sorted(runs, key=lambda run: run.start_s)
    return [*_changed(in_time, book), *_shared(in_time), *_mixed(in_time)]


def _changed(runs: Iterable[HandlerRun], book: Book | None) -> list[Violation]:
    """A frozen run may write its first line late, so a run is compared with the one that has the next lower fence."""
    by_first: dict[int, list[HandlerRun]] = defaultdict(list)
    for run in runs:
        by_first[run.update].append(run)
    violations = []
    for first, of_first in by_first.items():
        of_first.sort(key=lambda run: (int(run.fence or 0), run.start_s))
        for before, after in pairwise(of_first):
            is_interrupted = book is not None and first in book.interrupted
            grew = is_interrupted and after.group[: len(before.group)] == before.group
            if after.group != before.group and not grew:
                text = f"{first}: a run had the updates {before.group}, and the next one {after.group}"
                violations.append(Violation(text, (first,)))
    return violations


def _shared(runs: Iterable[HandlerRun]) -> list[Violation]:
    group_of: dict[int, int] = {}
    violations = []
    for run in runs:
        for update in run.group:
            other = group_of.setdefault(update, run.update)
            if other != run.update:
                text = f"{update} ran in the group of {other} and in that of {run.update}"
                violations.append(Violation(text, (update, other, run.update)))
    return violations


def _mixed(runs: Iterable[HandlerRun]) -> list[Violation]:
    groups: dict[str, dict[int, tuple[int, ...]]] = defaultdict(dict)
    for run in runs:
        for key in run.keys:
            groups[key][run.update] = run.group
    violations = []
    for key, of_key in groups.items():
        ordered = [of_key[first] for first in sorted(of_key)]
        for before, after in pairwise(ordered):
            if list(before) != sorted(before) or before[-1] >= after[0]:
                text = f"{key}: the group {after} does not follow the group {before}"
                violations.append(Violation(text, (before[0], after[0])))
    return violations
