"""One turn of a channel: sent, under way, answered, or lost.

Promises that a turn which failed leaves its settles to be sent again, and that before the next one Redis is told what
is really held: what the lost answer brought is leased in our name, and nobody would run it until its lease ran out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kombu.log import get_logger
from redis.exceptions import NoScriptError

from chatlanes.lanes.leases.settler import Settler
from chatlanes.lanes.protocol.commands import turn_command
from chatlanes.lanes.protocol.keys import group_of
from chatlanes.lanes.protocol.replies import Turned, turn_answer
from chatlanes.lanes.protocol.scripts import script
from chatlanes.lanes.runtime import clock
from chatlanes.lanes.transport.connection import Line

logger = get_logger(__name__)

#: More in one answer would keep Redis from its other clients.
MOST_IN_A_TURN = 200


class Asking(Line):
    """The line for turns. `asked_s` (clock.now_s) is when the last one was sent."""

    def __init__(self, kind: str, channel: Any) -> None:
        super().__init__(kind)
        self._channel = channel
        self._asked = 0
        self._looked = False
        self.asked_s = 0.0

    @property
    def _settler(self) -> Settler:
        settler: Settler = self._channel.settler
        return settler

    def ask(self, room: int) -> None:
        settler = self._settler
        self._reconcile()
        self._asked += 1
        self._looked = room > 0
        queues, first = self._channel.active_lane_queues, self._channel.first_queues()
        command = turn_command(
            rotated(queues[:first], self._asked) + rotated(queues[first:], self._asked),
            holder=settler.holder,
            lease_ms=settler.lease_ms,
            room=min(room, MOST_IN_A_TURN),
            holding=settler.leased(),
            settles=settler.plan_turn(),
            max_deaths=settler.max_deaths,
            first=first,
            times=settler.plan_times(),
        )
        self.asked_s = clock.now_s()
        try:
            self.send(self._channel, command)
        except BaseException:
            self.lost()
            raise

    def answer(self) -> Turned | None:
        """None: Redis did not know the script, and does now; ask again."""
        try:
            turned = turn_answer(self.read())
        except NoScriptError:  # nothing ran
            self._settler.turn_failed(may_have_run=False)
            self._channel.store.client.script_load(script("turn").source)
            return None
        except BaseException:
            self._settler.turn_failed()
            self.drop(self._channel)
            raise
        if not self._looked:
            turned = replace(turned, suspects=None)
        if turned.lost:
            logger.warning("lanes: settled too late, others may have run them again: %s", ", ".join(turned.lost))
        return turned

    def last_answer(self) -> Turned | None:
        """What is under way, for somebody who will not ask again. None: it was lost."""
        turned = None
        try:
            if self.has_answer(within_s=2.0):
                turned = self.answer()
        except Exception as error:
            logger.debug("lanes: the last turn was lost: %s", error)
        if turned is None:
            self.lost()
            self.drop(self._channel)
        return turned

    def lost(self) -> None:
        """No answer will come; it may have run all the same."""
        self.sent_s = None
        self._settler.turn_failed()

    def _reconcile(self) -> None:
        settler = self._settler
        if not settler.must_reconcile:
            return
        # No turn is under way, so nothing else is on its way to us.
        released = self._channel.store.reconcile(settler.holder, settler.ledger.ours())
        settler.must_reconcile = False
        if released:
            logger.info("lanes: released %d messages whose hand-out never arrived", released)


def rotated(queues: list[str], turn: int) -> list[str]:
    """In another order each time: every group of queues is the first one equally often, and in it every queue."""
    groups: dict[str, list[str]] = {}
    for queue in queues:
        groups.setdefault(group_of(queue), []).append(queue)
    round_, first = divmod(turn, max(len(groups), 1))
    named = list(groups.values())
    return [queue for group in named[first:] + named[:first] for queue in _from(group, round_ % len(group))]


def _from(group: list[str], first: int) -> list[str]:
    return group[first:] + group[:first]
