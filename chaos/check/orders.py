"""Checks the tasks of the shop: each of a committed transaction has run, no other has, and none ran again after it was
settled; never more than a limit allows at a time; those with the same keys were handed out in the order of the calls;
and no lane with a rate started one too early. Pure functions.

A task keeps its permits from its first run to the end of its last one, also while no process runs it after a kill. What
a run does after its lease was taken back does not count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from chaos.check.violation import Violation
from chaos.evidence.aof import FOREVER, MessageId
from chaos.evidence.records import Evidence, HandlerRun
from chaos.systems.orders import INTERVAL_MS, KIND, lane_keys, limits


def lost(evidence: Evidence) -> list[Violation]:
    ended = {number for number, run in _runs(evidence) if run.outcome == "end" and run.end_s <= run.valid_until_s}
    return [
        Violation(f"the order {number} was committed, and has not run to its end", (_id(number),))
        for number in evidence.orders
        if number not in ended
    ]


def wrong(evidence: Evidence) -> list[Violation]:
    """Those of a transaction that was rolled back, and those with two hand-outs that were not taken back."""
    not_committed = {number for number, _ in _runs(evidence)} - {*evidence.orders}
    settled = Counter(hold.message for hold in (evidence.holds or {}).values() if hold.until_s == FOREVER)
    again = [number for number in evidence.orders if settled[_id(number)] > 1]
    found = {
        **dict.fromkeys(not_committed, "ran, and was not committed"),
        **dict.fromkeys(again, "was handed out again after it was settled"),
    }
    return [Violation(f"the order {number} {what}", (_id(number),)) for number, what in found.items()]


def too_many(evidence: Evidence) -> list[Violation]:
    most = {key: count for number, _ in _runs(evidence) for key, count in limits(number).items()}
    return [
        Violation(f"{key}: {len(running)} ran at {at_s:.3f}: {', '.join(map(str, running))}", (*running,))
        for key, at_s, running in _at_a_time(evidence)
        if len(running) > most[key]
    ]


def most_at_a_time(evidence: Evidence) -> dict[str, int]:
    found = Counter[str]()
    for key, _, running in _at_a_time(evidence):
        found[key] = max(found[key], len(running))
    return dict(sorted(found.items()))


def _at_a_time(evidence: Evidence) -> Iterator[tuple[str, float, list[MessageId]]]:
    """For each start: the limit, the time, and the tasks that have its permits then."""
    spans: dict[int, tuple[float, float]] = {}
    for number, run in _runs(evidence):
        from_s, until_s = spans.get(number, (run.start_s, 0.0))
        spans[number] = min(from_s, run.start_s), max(until_s, run.busy_until_s)
    of_limit: dict[str, dict[int, tuple[float, float]]] = defaultdict(dict)
    for number, span in spans.items():
        for key in limits(number):
            of_limit[key][number] = span
    for key, found in of_limit.items():
        for at_s, _ in found.values():
            yield key, at_s, [_id(each) for each, (from_s, until_s) in found.items() if from_s <= at_s < until_s]


def out_of_order(evidence: Evidence) -> list[Violation]:
    first: dict[int, int] = {}  # the first fence of each
    for hold in (evidence.holds or {}).values():
        if (number := _number(hold.message)) is not None:
            first[number] = min(first.get(number, int(hold.fence)), int(hold.fence))
    found = []
    latest: dict[tuple[str, ...], int] = {}
    for number in sorted(first, key=lambda each: first[each]):
        keys = (*limits(number), *lane_keys(number))
        if number < latest.get(keys, number):
            text = f"{', '.join(keys)}: the order {number} was first handed out after {latest[keys]}"
            found.append(Violation(text, (_id(number), _id(latest[keys]))))
        latest[keys] = max(number, latest.get(keys, number))
    return found


def too_early(evidence: Evidence) -> list[Violation]:
    """A hand-out that was not started may have been released, which does not count."""
    started = sorted((int(run.fence or 0), number) for number, run in _runs(evidence) if lane_keys(number))
    return [
        Violation(
            f"the order {number} was handed out {(at_us - before_us) / 1000:.1f} ms after {before}", (_id(number),)
        )
        for (before_us, before), (at_us, number) in pairwise(started)
        if at_us - before_us < INTERVAL_MS * 1000
    ]


def _runs(evidence: Evidence) -> Iterator[tuple[int, HandlerRun]]:
    """Those that had the lease when they began."""
    for run in evidence.others:
        number = _number(run.id)
        if number is not None and not run.is_late:
            yield number, run


def _number(message: MessageId) -> int | None:
    kind, _, number = str(message).partition(":")
    return int(number) if kind == KIND else None


def _id(number: int) -> MessageId:
    return f"{KIND}:{number}"
