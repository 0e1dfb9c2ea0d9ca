"""Judges a run with one blow: what may be lost, and that each loss is reported once. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from celery_lanes.protocol.verbs import History


@dataclass(frozen=True)
class Outcome:
    """`before`, `after`: the totals of the server that died, and of the one that took over, before anything used it.
    Updates have ids from 1, in the order of their appends. `confirmed`: how many Telegram had forgotten at the blow.
    `never`: the updates that no handler has ended. `losses`: first and last of each record. `lines`: of each process
    that report a loss. `checked`: how many losses `lanes check` reports.
    """

    before: History
    after: History
    confirmed: int
    never: frozenset[int]
    losses: Sequence[tuple[int, int]]
    lines: Mapping[str, Sequence[str]]
    checked: int

    @property
    def gone(self) -> range:
        """The updates that the server which took over never had."""
        first = self.after.appended + 1 if self.after.identity == self.before.identity else 1
        return range(first, self.before.appended + 1)

    @property
    def is_older(self) -> bool:
        return bool(self.gone) or self.after.settled < self.before.settled


def wrong(outcome: Outcome, *, may_lose: bool) -> list[str]:
    """One sentence for each broken promise."""
    return [*_lost(outcome, may_lose), *_reports(outcome)]


def _lost(outcome: Outcome, may_lose: bool) -> Iterator[str]:
    allowed = set(outcome.gone) & set(range(1, outcome.confirmed + 1)) if may_lose else set()
    if others := outcome.never - allowed:
        yield f"{len(others)} updates were lost that may not be: {sorted(others)[:5]} …"


def _reports(outcome: Outcome) -> Iterator[str]:
    reported = [name for name, lines in outcome.lines.items() if lines]
    if not outcome.is_older:
        if reported or outcome.losses:
            yield f"{reported} report a loss, and there was none"
        return
    if twice := [name for name, lines in outcome.lines.items() if len(lines) > 1]:
        yield f"{twice} have reported the loss more than once"
    if missing := {"threads", "prefork"} - set(reported):
        yield f"{sorted(missing)} have not reported the loss"
    if not {"poller", "standby"} & set(reported):
        yield "no poller has reported the loss"
    if len(outcome.losses) != 1 or outcome.checked != 1:
        yield f"expected one recorded loss, but found {outcome.losses}, and {outcome.checked} in `lanes check`"
        return
    [(first, last)] = outcome.losses
    if first != outcome.gone.start or last >= max(outcome.gone.stop, first):
        yield f"updates {outcome.gone.start} to {outcome.gone.stop - 1} are gone, but {first} to {last} are reported"
    if unknown := [update for update in outcome.never if not first <= update <= last]:
        yield f"{len(unknown)} lost updates are not among those that are reported: {sorted(unknown)[:5]} …"
