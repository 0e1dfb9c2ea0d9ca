"""Audits answers: updates that were lost, overtaken or answered twice.

The audit uses what the simulator saw, delivered updates and the calls that named them, and works for any bot.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from chatlanes_sandbox.simulator.calls.params import gives_message

#: The newest updates that are audited.
MOST = 50_000


@dataclass
class AuditedUpdate:
    """One update. `lanes` are its keys."""

    lanes: Sequence[str]
    #: A hash of each message that was sent for it.
    sent: set[int] = field(default_factory=set)
    is_answered: bool = False
    #: It may be replayed behind later updates.
    is_buried: bool = False


class OrderAudit:
    """Counts updates, except for `repeated` and `uncertain`, which count messages. An uncertain message was sent again
    because a worker died before it recorded the first one as sent (docs/calls.md explains why it cannot be known).
    """

    def __init__(self, *, collects: bool = False, interrupts: bool = False) -> None:
        """With COLLECT an update may have no run of its own, so none counts as lost; with INTERRUPT a run may send what
        an interrupted one has sent.
        """
        self._collects, self._interrupts = collects, interrupts
        self._given: OrderedDict[int, AuditedUpdate] = OrderedDict()
        self._highest: dict[str, int] = {}
        #: Updates of a flood that are not answered yet.
        self.open: set[int] = set()
        self.answered = self.out_of_order = self.repeated = self.uncertain = self.lost = 0

    def give(self, update_id: int, lanes: Sequence[str], *, is_flood: bool = False) -> None:
        self._given[update_id] = AuditedUpdate(lanes)
        if is_flood and not self._collects:
            self.open.add(update_id)
        while len(self._given) > MOST:
            self._given.popitem(last=False)

    def called(self, update_id: int, method: str, params: dict[str, Any], place: str = "") -> None:
        """A call for this update took effect. `place`: its position, and whether it is a repetition."""
        given = self._given.get(update_id)
        if given is None:
            return
        self.open.discard(update_id)
        if gives_message(method):
            which, _, again = place.partition(" ")
            said = hash((which, method, orjson.dumps(_without_files(params), option=orjson.OPT_SORT_KEYS)))
            if said in given.sent and again:
                self.uncertain += 1
            elif said in given.sent and not self._interrupts:
                self.repeated += 1
            given.sent.add(said)
        if not given.is_answered:
            given.is_answered = True
            self.answered += 1
            self._place(update_id, given)

    def _place(self, update_id: int, given: AuditedUpdate) -> None:
        """Count it if a later update of the same lane was answered before it."""
        if not given.is_buried and any(self._highest.get(lane, 0) > update_id for lane in given.lanes):
            self.out_of_order += 1
        for lane in given.lanes:
            self._highest[lane] = max(update_id, self._highest.get(lane, 0))

    def buried(self, update_id: int) -> None:
        self.open.discard(update_id)
        if update_id in self._given:
            self._given[update_id].is_buried = True

    def done(self, update_id: int) -> None:
        """It has run. The bot need not have answered it."""
        self.open.discard(update_id)

    def lose(self, update_ids: Iterable[int]) -> None:
        """They are in no lane, and were never run."""
        for update_id in update_ids:
            self.open.discard(update_id)
            self.lost += 1

    def summary(self) -> dict[str, Any]:
        """In the form of AnswerOrder."""
        return {
            "total": self.answered,
            "chats": len(self._highest),
            "in_order": self.out_of_order == 0,
            "out_of_order": self.out_of_order,
            "duplicates": self.repeated,
        }


def _without_files(params: dict[str, Any]) -> dict[str, Any]:
    """A file that is sent twice has two ids."""
    return {
        name: {key: inner for key, inner in value.items() if key != "file_id"} if isinstance(value, dict) else value
        for name, value in params.items()
    }
