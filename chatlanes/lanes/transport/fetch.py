"""When a channel takes a turn: to say what is done, or to ask for as much as there is room for.

A channel that consumes lane queues has two connections for this besides kombu's own: one for turns, which is free
whenever there is something to settle, and one that blocks on the bells while there is nothing to do.
Promises that no bell is forgotten, and that a server that refuses is asked again instead of ending the worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kombu.log import get_logger
from redis.exceptions import ResponseError

from chatlanes.lanes.errors import Misconfigured
from chatlanes.lanes.leases.registry import keeper_of
from chatlanes.lanes.leases.settler import Settler
from chatlanes.lanes.protocol import keys
from chatlanes.lanes.runtime import clock
from chatlanes.lanes.transport.connection import OVERDUE_S, Line
from chatlanes.lanes.transport.dispatch import HandOut
from chatlanes.lanes.transport.pending_fetch import Asking

logger = get_logger(__name__)

#: How long to block on the bells, seconds, and in terms of a lease. A bell that got lost (its worker died with it)
#: costs at most this, less than the lease that the worker left; each look without a bell costs an idle worker a turn.
BELL_TIMEOUT_S, BELL_TIMEOUT_OF_LEASE = 5.0, 1 / 3
#: A server that refused (a replica, a script that takes too long, no disk) is asked again after so long, seconds.
REFUSED_PAUSE_S = 1.0

TURN, BELL, WAKE = "TURN", "BELL", "WAKE"


class Turns:
    """The turns of one channel."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._turn, self._bell = Asking(TURN, channel), Line(BELL)
        self._hand_out = HandOut(channel)
        self._is_rung = True  # there may be something ready
        self._must_pass_on = False  # a bell woke us while there is no room: another worker must hear it
        self._is_started = False
        self._is_refused = False
        self._waits_until_s = 0.0
        self.handlers: dict[str, Callable[[], Any]] = {
            TURN: lambda: self._unless_refused(self._read_turn),
            BELL: lambda: self._unless_refused(self._read_bell),
            WAKE: self._read_handoff,
        }

    @property
    def _settler(self) -> Settler:
        settler: Settler = self._channel.settler
        return settler

    def start(self) -> None:
        """The channel consumes its first lane queue."""
        self._is_rung = True
        if self._is_started:
            return
        self._is_started = True
        self._settler.consumers += 1
        # Redis may have handed out what never arrived here, or come back as another one.
        self._settler.must_reconcile = True
        keeper_of(self._settler, self._channel.connection.client)
        self._channel.connection.cycle.watch_pipe(self._channel, self._settler.handoff.reader)

    def step(self) -> None:
        """Send what there is to send. The loop calls this each time it goes round."""
        if self._is_started and clock.now_s() >= self._waits_until_s:
            self._unless_refused(self._step)

    def _step(self) -> None:
        self._drop_overdue()
        if self._turn.is_waiting:
            return
        room = self._room()
        if self._settler.room.can_wait() and not self._must_pass_on:
            return
        if self._settler.ledger.has_settles() or self._must_pass_on or (self._is_rung and room):
            self._ask(room)
        elif room and not self._is_rung and not self._bell.is_waiting:
            bells = [keys.bell(queue) for queue in self._channel.active_lane_queues]
            self._bell.send(self._channel, ["BRPOP", *bells, self._bell_timeout_s()])

    def _bell_timeout_s(self) -> float:
        return min(BELL_TIMEOUT_S, self._settler.lease_s * BELL_TIMEOUT_OF_LEASE)

    def cancel(self, queues: set[str], *, is_last: bool) -> None:
        """No more from these queues: what has not been given to a pool goes back."""
        self._give_back_turn_under_way()
        for queue in queues:
            self._settler.give_back_unclaimed(queue=queue)
        if is_last:
            self.close()

    def close(self) -> None:
        """No more turns: from here on the lease keeper says what is done."""
        if not self._is_started:
            return
        self._give_back_turn_under_way()
        # Celery drops or runs late what its pool has not been given yet: let it be neither.
        self._settler.give_back_unclaimed()
        self._is_started = False
        if self._channel.connection is not None:
            self._channel.connection.cycle.unwatch_pipe(self._settler.handoff.reader)
        self._settler.consumers -= 1
        self._settler.outbox_signal.set()
        self._turn.drop(self._channel)
        self._bell.drop(self._channel)

    def on_disconnect(self, connection: Any) -> None:
        """A connection of the channel was closed, by us or by an error."""
        if connection is getattr(self._turn.client, "connection", None) and self._turn.is_waiting:
            self._turn.lost()
        if connection is getattr(self._bell.client, "connection", None):
            self._bell.sent_s = None

    def _unless_refused(self, step: Callable[[], None]) -> None:
        """Raised from here, a refusal would make Celery start over again and again, for as long as it lasts."""
        try:
            step()
        except ResponseError as error:
            if not self._is_refused:
                logger.error("lanes: Redis refuses to hand out: %s. Asking again until it does.", error)
            self._is_refused = self._is_rung = True
            self._waits_until_s = clock.now_s() + REFUSED_PAUSE_S

    # -- turns

    def _room(self) -> int:
        qos = self._channel.qos
        if self._settler.room.pool is None:  # no Celery worker, but somebody's own consumer
            if not qos.prefetch_count:
                raise Misconfigured("set a prefetch count before consuming from a lane queue: consumer.qos(…)")
            return max(0, int(qos.prefetch_count) - self._settler.holding())
        ordinary = len(qos._delivered) - len(qos._dirty)
        return self._settler.room.size(ordinary)

    def _ask(self, room: int) -> None:
        self._must_pass_on = self._is_rung = False
        self._turn.ask(room)

    def _read_turn(self) -> None:
        # An idle connection that the server closed stays readable; the poller would report it again and again.
        if not self._turn.is_waiting and not self._turn.has_answer(within_s=0):
            return
        turned = self._turn.answer()
        if turned is None:
            self._is_rung = True
            return
        if self._is_refused:
            logger.info("lanes: Redis hands out again")
        self._is_refused = False
        # A bell that was read while the turn was under way may tell of what came after it.
        self._is_rung = self._is_rung or turned.more
        self._hand_out.deliver(turned, self._turn.asked_s)

    def _give_back_turn_under_way(self) -> None:
        """Its answer is on its way; read it, so that what it brings is released and not left to its lease."""
        if self._turn.is_waiting and (turned := self._turn.last_answer()):
            self._hand_out.give_back(turned, self._turn.asked_s)

    # -- bells, and reports of tasks

    def _read_bell(self) -> None:
        try:
            self._bell.read()
        except BaseException:
            self._bell.drop(self._channel)
            raise
        # Also without a bell: now and then one gets lost, and a look is cheap.
        self._is_rung = True
        self._must_pass_on = self._room() == 0

    def _read_handoff(self) -> None:
        self._settler.read_handoff()

    def _drop_overdue(self) -> None:
        for line in (self._turn, self._bell):
            if line.is_overdue():
                logger.warning("lanes: no answer from Redis for %.0f s; connecting anew", OVERDUE_S)
                if line is self._turn:
                    self._turn.lost()
                line.drop(self._channel)
