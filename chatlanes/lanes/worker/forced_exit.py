"""Forced exit of a worker that is stopping while Redis does not answer.

Guarantees that the worker exits within 10 s of the stop or of the end of the last handler, whichever is later; kombu
would wait for Redis without a limit. Does nothing while Redis answers. Does not guarantee that pending acks arrive:
they are sent on a connection that was opened at the start, and their answers are not awaited. A frozen server reads
them later; otherwise the leases expire.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from celery import signals
from celery.worker import state
from kombu.log import get_logger
from redis import Redis
from redis.exceptions import RedisError, ResponseError

from chatlanes.lanes.leases.in_flight import InFlight
from chatlanes.lanes.protocol import keys
from chatlanes.lanes.protocol.commands import fetch_command, problem_json
from chatlanes.lanes.protocol.pipelined import PipelinedCommand, PipelinedConnection, UnawaitedCommand
from chatlanes.lanes.protocol.scripts import script
from chatlanes.lanes.runtime import clock, os_threads
from chatlanes.lanes.worker.stopping import exit_code

logger = get_logger(__name__)

#: The worker exits when Redis has not answered for NO_ANSWER_S and no handler has run for IDLE_S. Together with the
#: time that the end of a handler may take (retry.py) this is less than 10 s.
NO_ANSWER_S, IDLE_S = 6.0, 3.0
#: The timeout of one command.
ANSWER_WITHIN_S = 1.0
CHECK_EVERY_S = 0.2


class ForcedExit:
    """The forced exit of one worker. `connect` makes a client with a timeout of ANSWER_WITHIN_S."""

    def __init__(self, in_flight: InFlight, connect: Callable[[], Redis]) -> None:
        self._in_flight = in_flight
        self._connect = connect
        self._no_answer_since_s: float | None = None
        self._idle_since_s: float | None = None
        self._is_watching = False
        self._connection: PipelinedConnection | None = None

    def start(self) -> None:
        """Open the connection for the last acks, and start watching when the worker begins to shut down."""
        signals.worker_shutting_down.connect(self._watch, weak=False)
        with suppress(RedisError, OSError):
            self._connection = PipelinedConnection(
                self._connect(), [script(name) for name in ("bury", "release", "retry", "turn")]
            )

    def _watch(self, **_: Any) -> None:
        if not self._is_watching:  # Celery may send the signal twice
            self._is_watching = True
            os_threads.start_thread(self._wait)

    def _wait(self) -> None:
        client, pause = self._connect(), os_threads.Signal()
        while not self._must_exit(clock.now_s(), _answers(client), self._is_busy()):
            pause.wait(CHECK_EVERY_S)
        logger.warning(
            "lanes: Redis does not answer, and no handler runs here: the worker exits without waiting for it"
        )
        with suppress(Exception):
            self._send_last_acks()
        # Acks that Redis never reads are lost with this process: their leases expire, and the messages run again.
        os._exit(exit_code() or 0)

    def _send_last_acks(self) -> None:
        """Release and settle as the normal shutdown does (shutdown.py), without waiting for answers."""
        if self._in_flight.forks:
            self._in_flight.release_all()
        else:
            self._in_flight.release_unclaimed()
        if self._connection is not None:
            for asked in self._last_acks():
                self._connection.send_unawaited(UnawaitedCommand(asked))

    def _last_acks(self) -> Iterator[PipelinedCommand]:
        in_flight = self._in_flight
        pending = in_flight.pending_acks.everything()
        turn, release, bury, retry = map(script, ("turn", "release", "bury", "retry"))
        settling = fetch_command(
            [],
            holder=in_flight.holder,
            lease_ms=in_flight.lease_ms,
            room=0,
            holding=0,
            settles=list(pending.settles),
            max_deaths=in_flight.max_deaths,
        )
        yield PipelinedCommand(turn, settling)
        group = [(message_id, fence, int(died)) for message_id, fence, died in pending.releases]
        yield PipelinedCommand(release, release.command(group=group))
        for message_id, fence, problem in pending.burials:
            yield PipelinedCommand(bury, bury.command(id=message_id, fence=fence, problem=problem_json(problem)))
        for message_id, fence, delay_ms, problem in pending.retries:
            problem_ = problem_json(problem)
            yield PipelinedCommand(
                retry, retry.command(id=message_id, fence=fence, delay_ms=delay_ms, problem=problem_)
            )

    def _must_exit(self, checked_s: float, answers: bool, is_busy: bool) -> bool:
        self._no_answer_since_s = None if answers else self._no_answer_since_s or checked_s
        self._idle_since_s = None if is_busy else self._idle_since_s or checked_s
        if self._no_answer_since_s is None or self._idle_since_s is None:
            return False
        now_s = clock.now_s()
        return now_s - self._no_answer_since_s >= NO_ANSWER_S and now_s - self._idle_since_s >= IDLE_S

    def _is_busy(self) -> bool:
        if self._in_flight.forks:  # the event loop, which reads the reports of the children, may be blocked
            self._in_flight.reports.read()
            return self._in_flight.is_running()
        return self._in_flight.is_running(also_lost=True) or bool(state.active_requests)


def _answers(client: Redis) -> bool:
    try:
        client.setrange(keys.COUNTS + ":none", 0, b"")  # a write that changes nothing: some servers answer only reads
    except ResponseError:
        return True
    except (RedisError, OSError):
        return False
    return True
