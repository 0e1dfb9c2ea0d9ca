"""Judges a chaos run: counts what must not be. Pure, and tested with bad histories made by hand.

Promises to find what was lost, out of order, run two at a time, done by a stale holder, buried without a reason or not
buried with one, sent twice though its first answer was known, and sessions that did not see each update once. Whoever
lost a lease is in the wrong from that moment (the fence of the take-back says when), whoever took over is in the right.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from chaos import order, poison, recovery, talk, twice
from chaos.offence import Offence
from chaos.records import Evidence


@dataclass
class Verdict:
    """`offences` by kind, all of which must be empty; and what is counted besides."""

    offences: dict[str, list[Offence]] = field(default_factory=dict)
    updates: int = 0
    runs: int = 0
    duplicates: int = 0  #: ends beyond the first: at least once is what is promised
    late_starts: int = 0  #: first lines of runs whose lease was over by then: frozen right before; no effect may follow
    twice_in_flight: int = 0  #: messages sent again where a blow met the first call: nobody can know whether it arrived
    recoveries_s: list[float] = field(default_factory=list)  #: one for each kill that met an update in hand

    @property
    def is_clean(self) -> bool:
        return not any(self.offences.values())


def check(evidence: Evidence) -> Verdict:
    valid = [run for run in evidence.runs if not run.is_late]
    terminated = evidence.terminated
    finished = order.finished(valid, terminated)
    in_flight, otherwise = twice.sent_twice(evidence)
    return Verdict(
        offences={
            "lost": order.lost(evidence.expected, finished, evidence.buried, terminated),
            "out of order": order.out_of_order(valid, finished),
            "two at a time": order.overlaps(valid),
            "effects by stale holders": talk.stale(evidence),
            "innocents buried": _innocents_buried(evidence),
            "poison not buried": _poison_not_buried(evidence),
            "sessions wrong": _sessions_wrong(evidence, finished),
            "sent twice without need": otherwise,
        },
        updates=len(finished),
        runs=len(evidence.runs),
        duplicates=sum(n - 1 for n in Counter(run.update for run in valid if run.outcome == "end").values()),
        late_starts=len(evidence.runs) - len(valid),
        twice_in_flight=len(in_flight),
        recoveries_s=recovery.times_s(evidence),
    )


def _innocents_buried(evidence: Evidence) -> list[Offence]:
    buried = sorted((evidence.buried or frozenset()) - evidence.terminated)
    return [Offence(f"{update} was buried", (update,)) for update in buried if not poison.is_poison(update)]


def _sessions_wrong(evidence: Evidence, finished: Iterable[int]) -> list[Offence]:
    """The session of a chat counts each update once that was finished there, however often it ran."""
    if evidence.sessions is None:
        return []
    chat_of = {run.update: run.keys[0] for run in evidence.runs}
    updates: dict[str, list[int]] = defaultdict(list)
    for update in finished:
        if not poison.is_poison(update) and update not in evidence.terminated:
            updates[chat_of[update]].append(update)
    return [
        Offence(f"{chat}: its session has seen {seen} updates of {len(updates[chat])}", tuple(updates[chat]))
        for chat in sorted(updates.keys() | evidence.sessions)
        if (seen := evidence.sessions.get(chat, 0)) != len(updates[chat])
    ]


def _poison_not_buried(evidence: Evidence) -> list[Offence]:
    """Without dead letters: what still kills."""
    expected = [update for update in evidence.expected if poison.is_poison(update)]
    if evidence.buried is not None:
        left = [update for update in expected if update not in evidence.buried]
    else:
        left = [update for update in expected if poison.kills(update)]
    return [Offence(f"{update} was never given up", (update,)) for update in left]
