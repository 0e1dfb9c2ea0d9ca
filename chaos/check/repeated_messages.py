"""Finds messages that Telegram received more than once, and whether their outcome could be known. Pure functions.

A repeated message is excused if the first outcome could not be known: the first call got no answer (its process died
or its connection broke), or a fault affected Redis, or the connection to it, before the outcome was noted. A message
that was repeated although its outcome was noted is always found.
"""

from __future__ import annotations

from collections import defaultdict

from chaos.check.violation import Violation
from chaos.evidence.records import Call, Effect, Evidence, HandlerRun

#: Fire-and-forget commands have reached Redis by then, unless a fault delays them.
ARRIVES_WITHIN_S = 0.5
#: Faults of a worker that keep its commands from Redis until its lease may be over.
KEEP_FROM_REDIS = ("freeze", "cut_redis", "hole_redis")


def sent_twice(evidence: Evidence) -> tuple[list[Effect], list[Violation]]:
    """Repeated messages: those where a call was in flight at a fault, and those without that excuse."""
    calls = {(run.name, call.number): (run, call) for run in evidence.runs for call in run.calls.values()}
    sent: dict[tuple[int, int, int], list[Effect]] = defaultdict(list)
    in_flight: list[Effect] = []
    needless: list[Violation] = []
    for effect in sorted(evidence.effects, key=lambda effect: effect.at_s):
        before = sent[effect.update, effect.number, effect.size]
        if before and all(_was_in_flight(*calls[each.run or "", each.number], evidence) for each in before):
            in_flight.append(effect)
        elif before:
            text = f"{effect.update}: its message {effect.number} came again at {effect.at_s:.3f}"
            needless.append(Violation(text, (effect.update,)))
        if (effect.run or "", effect.number) in calls:
            before.append(effect)
    return in_flight, needless


def _was_in_flight(run: HandlerRun, call: Call, evidence: Evidence) -> bool:
    book = evidence.book
    if book is not None and (run.update, call.number, run.fence) in book.noted:
        return False
    if call.outcome != "answered":
        return True
    return book is not None and _was_struck(run, call, evidence)


def _was_struck(run: HandlerRun, call: Call, evidence: Evidence) -> bool:
    """True if a fault kept the worker's commands about this call from Redis."""
    hold = (evidence.holds or {}).get((run.update, run.fence or ""))
    part = evidence.parts.get(hold.pid) if hold else None
    return any(
        fault.at_s <= call.ended_s + ARRIVES_WITHIN_S and fault.at_s + fault.for_s >= call.began_s
        for fault in evidence.faults
        if fault.target == "redis" or (fault.target == part and fault.what in KEEP_FROM_REDIS)
    )
