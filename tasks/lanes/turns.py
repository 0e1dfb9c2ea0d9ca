"""Takes turns: tells Redis what is done and asks for as much as there is room for, whenever the loop goes round.

A channel that consumes lane queues has two connections for this besides kombu's own: one for turns, which is free
whenever there is something to settle, and one that blocks on the bells while there is nothing to do.
Promises that everything a turn brings is entered into the settler's books before any of it is delivered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from kombu.log import get_logger
from redis.exceptions import NoScriptError, ResponseError

from tasks.lanes import clock, envelope, keys
from tasks.lanes.answers import Leased, Turned, turn_answer
from tasks.lanes.books import tag_of
from tasks.lanes.commands import turn_command
from tasks.lanes.errors import Misconfigured
from tasks.lanes.line import OVERDUE_S, Line
from tasks.lanes.registry import keeper_of
from tasks.lanes.scripts import script
from tasks.lanes.settler import Settler

logger = get_logger(__name__)

#: How long to block on the bells, seconds. A bell that got lost (its worker died) costs at most this.
BELL_TIMEOUT_S = 1
#: More in one answer would keep Redis from its other clients.
MOST_IN_A_TURN = 200

#: A server that refused (a replica, a script that takes too long, no disk) is asked again after so long, seconds.
REFUSED_PAUSE_S = 1.0

TURN, BELL, WAKE = "TURN", "BELL", "WAKE"


class Turns:
    """The turns of one channel."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._turn, self._bell = Line(TURN), Line(BELL)
        self._asked_s = 0.0
        self._is_rung = True  # there may be something ready
        self._must_pass_on = False  # a bell woke us while there is no room: another worker must hear it
        self._rotation = 0
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
        if self._settler.has_settles() or self._must_pass_on or (self._is_rung and room):
            self._send_turn(room)
        elif room and not self._is_rung and not self._bell.is_waiting:
            bells = [keys.bell(queue) for queue in self._channel.active_lane_queues]
            self._bell.send(self._channel, ["BRPOP", *bells, BELL_TIMEOUT_S])

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
            self._turn.sent_s = None
            self._settler.turn_failed()
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
        if self._settler.pool is None:  # no Celery worker, but somebody's own consumer
            if not qos.prefetch_count:
                raise Misconfigured("set a prefetch count before consuming from a lane queue: consumer.qos(…)")
            return max(0, int(qos.prefetch_count) - self._settler.holding())
        ordinary = len(qos._delivered) - len(qos._dirty)
        return min(self._settler.room(ordinary), MOST_IN_A_TURN)

    def _send_turn(self, room: int) -> None:
        settler = self._settler
        if settler.answer_lost:
            # What the lost answer brought is leased in our name. No turn is under way, so nothing else is.
            self._channel.store.reconcile(settler.holder, [message_id for message_id, _ in settler.leases()])
            settler.answer_lost = False
        queues = self._channel.active_lane_queues
        self._rotation = (self._rotation + 1) % max(len(queues), 1)
        command = turn_command(
            queues[self._rotation :] + queues[: self._rotation],
            holder=settler.holder,
            lease_ms=settler.lease_ms,
            room=room,
            holding=settler.leased(),
            settles=settler.plan_turn(),
            max_deaths=settler.max_deaths,
        )
        self._must_pass_on = self._is_rung = False
        self._asked_s = clock.now_s()
        try:
            self._turn.send(self._channel, command)
        except BaseException:
            self._turn.sent_s = None
            settler.turn_failed()
            raise

    def _read_turn(self) -> None:
        turned = self._answer()
        if turned is not None:
            self._deliver(turned)

    def _answer(self) -> Turned | None:
        try:
            turned = turn_answer(self._turn.read())
        except NoScriptError:  # nothing ran
            self._settler.turn_failed(may_have_run=False)
            self._channel.store.client.script_load(script("turn").source)
            self._is_rung = True
            return None
        except BaseException:
            self._settler.turn_failed()
            self._turn.drop(self._channel)
            raise
        if self._is_refused:
            logger.info("lanes: Redis hands out again")
        self._is_refused = False
        # A bell that was read while the turn was under way may tell of what came after it.
        self._is_rung = self._is_rung or turned.more
        if turned.lost:
            logger.warning("lanes: settled too late, others may have run them again: %s", ", ".join(turned.lost))
        return turned

    def _deliver(self, turned: Turned) -> None:
        self._settler.turn_ended(turned.leased, self._asked_s, suspects_wait=turned.suspects)
        undelivered = deque(turned.leased)
        try:
            while undelivered:
                self._deliver_one(undelivered.popleft())
        except BaseException:  # a shutdown, or a connection that broke in the callback
            for leased in undelivered:
                self._settler.give_back(tag_of(leased.id, leased.fence))
            raise

    def _deliver_one(self, leased: Leased) -> None:
        tag = tag_of(leased.id, leased.fence)
        callback = self._channel.connection._callbacks.get(leased.queue)
        if callback is None:
            self._settler.give_back(tag)
            return
        try:
            message = unpack(leased, self._asked_s + self._settler.lease_s)
        except (ValueError, KeyError, TypeError) as error:
            logger.error("lanes: buried %s, which is no message: %s", leased.id, error)
            self._settler.bury(tag, {"type": "NoMessage", "message": f"it cannot be unpacked: {error}"})
            return
        if self._settler.pool is None:
            self._settler.claim(tag, starts=True)
            callback(message)
            return
        try:
            callback(message)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            # Celery fell over its content: so would every other worker that is handed it.
            logger.error("lanes: buried %s, which Celery cannot take: %s", leased.id, error, exc_info=True)
            self._settler.bury(tag, {"type": type(error).__name__, "message": f"Celery cannot take it: {error}"})

    def _give_back_turn_under_way(self) -> None:
        """Its answer is on its way; read it, so that what it brings is released and not left to its lease."""
        if not self._turn.is_waiting:
            return
        try:
            turned = self._answer() if self._turn.has_answer(within_s=2.0) else None
        except Exception as error:
            logger.debug("lanes: the last turn was lost: %s", error)
            return
        if turned is None:
            self._settler.turn_failed()
            self._turn.drop(self._channel)
            return
        self._settler.turn_ended(turned.leased, self._asked_s, suspects_wait=turned.suspects)
        for leased in turned.leased:
            self._settler.give_back(tag_of(leased.id, leased.fence))

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
                    self._settler.turn_failed()
                line.drop(self._channel)


def unpack(leased: Leased, deadline_s: float) -> dict[str, Any]:
    """The message as kombu takes it, with what its runner must know (delivery.py). Raises ValueError for none."""
    lane = {
        "deadline_s": deadline_s,
        "failed": leased.failed,
        "died": leased.died,
        "replayed_s": leased.replayed_s,
    }
    return envelope.unpack(
        leased.stored, message_id=leased.id, queue=leased.queue, tag=tag_of(leased.id, leased.fence), lane=lane
    )
