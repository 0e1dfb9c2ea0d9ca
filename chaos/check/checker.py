"""Checks a chaos run: counts violations. Pure functions, tested with bad histories made by hand.

Finds updates that were lost, ran out of order or two at a time, effects by stale holders, burials without a reason and
missing burials, messages sent twice although the first result was known, and sessions that did not count each update
once; and what timers, schedules, broadcasts and agents did wrong.

A holder is stale from the moment its lease is taken back (the fence of the take-back is that moment).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from chaos.check import (
    agents,
    broadcast,
    groups,
    order,
    orders,
    recovery,
    repeated_messages,
    schedules,
    stale_calls,
    timers,
)
from chaos.check.violation import Violation
from chaos.evidence.records import Evidence, HandlerRun
from chaos.systems import poison
from chaos.systems.agents import STEP


@dataclass
class Judgement:
    """`violations` by kind, which must all be empty; the other figures are informative."""

    violations: dict[str, list[Violation]] = field(default_factory=dict)
    updates: int = 0
    runs: int = 0
    duplicates: int = 0  #: ends after the first: delivery is at least once
    late_starts: int = (
        0  #: runs that started after their lease was lost (frozen right before); they must have no effect
    )
    #: messages sent again after a fault during the first call, whose outcome is unknown: their kinds, and the faults
    twice_in_flight: Counter[str] = field(default_factory=Counter)
    met_by: Counter[str] = field(default_factory=Counter)
    in_groups: int = 0  #: updates that ran together with others
    interrupted: int = 0  #: updates of which a run was interrupted
    stops: int = 0  #: that users sent to agents
    stopped: int = 0  #: updates and answers that were stopped
    answers: Counter[str] = field(default_factory=Counter)  #: how the questions of the agents ended
    edits: int = 0  #: of the messages in which agents stream
    steps: int = 0  #: different steps that were paid
    additions: int = 0  #: that users sent to agents
    taken: int = 0  #: additions that a run in progress took
    orders: int = 0  #: that the shop has committed
    at_a_time: dict[str, int] = field(default_factory=dict)  #: of each limit, the most that ran
    timers_late_s: list[float] = field(default_factory=list)  #: of each timer that fired, sorted
    fired: dict[str, int] = field(default_factory=dict)  #: how many occurrences of each schedule
    recoveries_s: list[float] = field(default_factory=list)  #: one per kill that met an update in flight

    @property
    def is_clean(self) -> bool:
        return not any(self.violations.values())


#: The promises about everything but updates. What each of these finds breaks one.
OTHERS: dict[str, Callable[[Evidence], list[Violation]]] = {
    "recipients lost": broadcast.lost,
    "recipients reached twice": broadcast.wrong,
    "timers lost": timers.lost,
    "timers fired twice, early, or of a buried update": timers.wrong,
    "schedules lost": schedules.lost,
    "schedules early or out of order": schedules.wrong,
    "questions not continued once": agents.wrong_questions,
    "additions not in one run": agents.wrong_additions,
    "streams not whole": agents.not_whole,
    "effects after a stop": agents.after_stops,
    "orders lost": orders.lost,
    "orders not committed, or run again": orders.wrong,
    "more at a time than a limit allows": orders.too_many,
    "orders out of order": orders.out_of_order,
    "orders before the time of their rate": orders.too_early,
}


def check(evidence: Evidence) -> Judgement:
    valid = [run for run in evidence.runs if not run.is_late]
    others = [run for run in evidence.others if not run.is_late]
    book = evidence.book
    finished = order.finished(valid, evidence.terminated)
    in_flight, otherwise = repeated_messages.sent_twice(evidence)
    return Judgement(
        violations={
            **_of_updates(evidence, valid, otherwise),
            **{name: found(evidence) for name, found in OTHERS.items()},
        },
        updates=len(finished),
        runs=len(evidence.runs),
        duplicates=sum(n - 1 for n in Counter(run.update for run in valid if run.outcome == "end").values()),
        late_starts=len(evidence.all_runs) - len(valid) - len(others),
        twice_in_flight=Counter(each.effect.text.partition(" ")[0] or "update" for each in in_flight),
        met_by=Counter(each.fault for each in in_flight),
        in_groups=len({update for run in valid if run.group[1:] for update in run.group}),
        interrupted=0 if book is None else len(book.interrupted - book.stopped.keys()),
        stops=sum(each.stop is not None for each in evidence.conversations),
        stopped=0 if book is None else len(book.stopped),
        answers=agents.answers(evidence),
        additions=sum(len(each.additions) for each in evidence.conversations),
        taken=agents.taken(evidence),
        edits=len(evidence.edits),
        steps=len({effect.text for effect in evidence.effects if effect.text.startswith(f"{STEP} ")}),
        orders=len(evidence.orders),
        at_a_time=orders.most_at_a_time(evidence),
        timers_late_s=timers.lateness_s(evidence),
        fired={name: len(fired) for name, fired in schedules.fired_at(evidence).items()},
        recoveries_s=recovery.times_s(evidence),
    )


def _of_updates(
    evidence: Evidence, valid: Sequence[HandlerRun], sent_twice: list[Violation]
) -> dict[str, list[Violation]]:
    """`valid` are the runs that had the lease when they began."""
    finished = order.finished(valid, evidence.terminated)
    others = [run for run in evidence.others if not run.is_late]
    return {
        "lost": order.lost(evidence.expected, finished, evidence.buried, evidence.terminated),
        "out of order": order.out_of_order(valid, finished),
        "two at a time": order.overlaps([*valid, *others]),
        "groups wrong": groups.wrong(evidence.runs, evidence.book),
        "effects by stale holders": stale_calls.stale(evidence),
        "innocents buried": _innocents_buried(evidence),
        "poison not buried": _poison_not_buried(evidence),
        "sessions wrong": _sessions_wrong(evidence, finished),
        "sent twice without need": sent_twice,
    }


def _innocents_buried(evidence: Evidence) -> list[Violation]:
    buried = sorted((evidence.buried or frozenset()) - evidence.terminated)
    return [Violation(f"{update} was buried", (update,)) for update in buried if update not in _poisoned(evidence)]


def _poisoned(evidence: Evidence) -> frozenset[int]:
    """Poison, and the updates that were collected with it."""
    groups = frozenset(update for run in evidence.runs if run.is_poison for update in run.group)
    return groups | frozenset(update for update in evidence.expected if poison.is_poison(update))


def _sessions_wrong(evidence: Evidence, finished: Iterable[int]) -> list[Violation]:
    """A chat's session must have counted each finished update of the chat once, however often it ran. What is malformed
    has no chat.
    """
    if evidence.sessions is None:
        return []
    chat_of = {update: run.keys[0] for run in evidence.runs if run.keys for update in run.group}
    poisoned = _poisoned(evidence)
    updates: dict[str, list[int]] = defaultdict(list)
    for update in finished:
        if update not in poisoned and update not in evidence.terminated:
            updates[chat_of[update]].append(update)
    return [
        Violation(f"{chat}: its session has counted {seen} updates of {len(updates[chat])}", tuple(updates[chat]))
        for chat in sorted(updates.keys() | evidence.sessions)
        if (seen := evidence.sessions.get(chat, 0)) != len(updates[chat])
    ]


def _poison_not_buried(evidence: Evidence) -> list[Violation]:
    """In a system without dead letters, only poison that kills is expected to be given up."""
    expected = [update for update in evidence.expected if poison.is_poison(update)]
    if evidence.buried is not None:
        left = [update for update in expected if update not in evidence.buried]
    else:
        left = [update for update in expected if poison.kills(update)]
    return [Violation(f"{update} was never buried", (update,)) for update in left]
