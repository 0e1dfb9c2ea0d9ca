"""Finds messages that Telegram received more than once, and whether their outcome could be known. Pure functions.

A repeated message is excused if a fault kept the first outcome from being known: a fault of its process or of Telegram
while the call was in flight; or one of Redis, or of the connection to it, before the outcome was noted. A message that
was repeated although its outcome was noted, or without such a fault, is always found. A stream sends its first message
again within the call, after an error of the network: then only a fault of the first kind excuses it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from chaos.check.violation import Violation
from chaos.evidence.records import Call, Effect, Evidence, HandlerRun, InjectedFault

#: Fire-and-forget commands have reached Redis by then, unless a fault delays them.
ARRIVES_WITHIN_S = 0.5
#: Faults of a worker that keep its commands from Redis until its lease may be over.
KEEP_FROM_REDIS = ("freeze", "cut_redis", "hole_redis")
#: Faults that end no call and no lease, except in the processes that they kill.
HARMLESS = ("kill_all", "kill_main", "kill_child", "stop", "forget_scripts")
#: Telegram's faults meet a number of calls, of which the last one may come this much later.
OF_TELEGRAM_LAST_S = 30.0
#: A process that killed itself with a poison update, which takes with it all calls of its threads.
POISON = "poison"


class InFlight(NamedTuple):
    """A repeated message, and the fault that met the call before it."""

    effect: Effect
    fault: str


def sent_twice(evidence: Evidence) -> tuple[list[InFlight], list[Violation]]:
    """Repeated messages: those where a call was in flight at a fault, and those without that excuse."""
    calls = {(run.name, call.number): (run, call) for run in evidence.all_runs for call in run.calls.values()}
    sent: dict[tuple[int, int | str, int, str], list[Effect]] = defaultdict(list)
    in_flight: list[InFlight] = []
    needless: list[Violation] = []
    for effect in sorted(evidence.effects, key=lambda effect: effect.at_s):
        before = sent[effect.update, effect.number, effect.size, effect.text]
        faults = [
            _fault(*calls[each.run or "", each.number], evidence, is_within=each.run == effect.run) for each in before
        ]
        if faults and all(faults):
            in_flight.append(InFlight(effect, faults[-1] or ""))
        elif faults:
            text = f"{effect.text or effect.update}: its message {effect.number} came again at {effect.at_s:.3f}"
            needless.append(Violation(text, (effect.update,)))
        if (effect.run or "", effect.number) in calls:
            before.append(effect)
    return in_flight, needless


def _fault(run: HandlerRun, call: Call, evidence: Evidence, *, is_within: bool) -> str | None:
    """The fault that hid the outcome of this call; None: the outcome is known. `is_within`: it was repeated within the
    call, whose outcome is that of the repetition.
    """
    if is_within:
        return _that_met(run, call, evidence)
    book = evidence.book
    if book is not None and (run.id, call.number, run.fence) in book.noted:
        return None
    if call.outcome == "answered":
        return None if book is None else _that_kept_from_redis(run, call, evidence)
    return _that_met(run, call, evidence)


def _that_kept_from_redis(run: HandlerRun, call: Call, evidence: Evidence) -> str | None:
    """The fault that kept the worker's commands about this call from Redis."""
    part, until_s = _part(run, evidence), call.ended_s + ARRIVES_WITHIN_S
    found = (
        fault
        for fault in evidence.faults
        if fault.target == "redis" or (fault.target == part and fault.what in KEEP_FROM_REDIS)
    )
    return _first(fault for fault in found if fault.at_s <= until_s and fault.at_s + fault.for_s >= call.began_s)


def _that_met(run: HandlerRun, call: Call, evidence: Evidence) -> str | None:
    """The fault during a call that got no answer."""
    if evidence.book is None:
        return "unknown"  # without a lease it is not known which part ran it
    hold, part = evidence.book.holds.get((run.id, run.fence or "")), _part(run, evidence)
    until_s = min(call.ended_s, run.end_s, hold.until_s if hold else call.ended_s) + ARRIVES_WITHIN_S
    found = (
        fault
        for fault in evidence.faults
        if run.pid in fault.pids
        or (fault.target in (part, "redis") and fault.what not in HARMLESS)
        or fault.what in ("lost_answers", "terminate")
    )
    return _first(
        fault for fault in found if fault.at_s <= until_s and fault.at_s + _lasts_s(fault) >= call.began_s
    ) or _poison(run, call, evidence)


def _lasts_s(fault: InjectedFault) -> float:
    return OF_TELEGRAM_LAST_S if fault.target == "telegram" else fault.for_s


def _poison(run: HandlerRun, call: Call, evidence: Evidence) -> str | None:
    """The process of the call was killed by an update that it ran."""
    ends_s = [each.end_s for each in evidence.runs if each.pid == run.pid and each.outcome == "die"]
    return POISON if any(call.began_s <= end_s <= call.ended_s for end_s in ends_s) else None


def _part(run: HandlerRun, evidence: Evidence) -> str | None:
    """The part that had its lease."""
    hold = (evidence.holds or {}).get((run.id, run.fence or ""))
    return evidence.parts.get(hold.pid) if hold else None


def _first(faults: Iterable[InjectedFault]) -> str | None:
    return next((fault.what for fault in faults), None)
