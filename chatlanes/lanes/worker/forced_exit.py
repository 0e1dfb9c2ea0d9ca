"""The end of a worker that was told to stop while Redis hangs.

Promises that it ends within 10 s of the stop, and of the end of the last handler: kombu waits for Redis without a
limit, and nothing else would end it. Does nothing while Redis answers. What is to be said last is sent on a connection
that was opened for it: a server that is only frozen reads it when it wakes up. Else it is for the leases to run out.
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

from chatlanes.lanes.leases.settler import Settler
from chatlanes.lanes.protocol import keys
from chatlanes.lanes.protocol.commands import problem_json, turn_command
from chatlanes.lanes.protocol.pipelined import Asked, Told, Wire
from chatlanes.lanes.protocol.scripts import script
from chatlanes.lanes.runtime import clock, os_threads
from chatlanes.lanes.worker.stopping import exit_code

logger = get_logger(__name__)

#: Redis does not answer for so long, and nothing runs here for so long. Together with what the end of a handler may
#: take (retry.py) that is less than 10 s.
AWAY_S, QUIET_S = 6.0, 3.0
#: Of one question.
ANSWER_WITHIN_S = 1.0
LOOK_EVERY_S = 0.2


class ForcedExit:
    """Of one worker. `connect` makes a client that waits for ANSWER_WITHIN_S."""

    def __init__(self, settler: Settler, connect: Callable[[], Redis]) -> None:
        self._settler = settler
        self._connect = connect
        self._away_since_s: float | None = None
        self._quiet_since_s: float | None = None
        self._is_watching = False
        self._line: Wire | None = None

    def start(self) -> None:
        """Open the line for the last words, and watch the worker from the moment when it is told to stop."""
        signals.worker_shutting_down.connect(self._watch, weak=False)
        with suppress(RedisError, OSError):
            self._line = Wire(self._connect(), [script(name) for name in ("bury", "release", "retry", "turn")])

    def _watch(self, **_: Any) -> None:
        if not self._is_watching:  # it may be told twice
            self._is_watching = True
            os_threads.start_thread(self._wait)

    def _wait(self) -> None:
        client, pause = self._connect(), os_threads.Signal()
        while not self._is_over(clock.now_s(), _answers(client), self._is_busy()):
            pause.wait(LOOK_EVERY_S)
        logger.warning("lanes: Redis does not answer, and nothing runs here: ending without waiting for it")
        with suppress(Exception):
            self._say_the_last()
        os._exit(exit_code() or 0)

    def _say_the_last(self) -> None:
        """As LastWords does, without an answer."""
        if self._settler.forks:
            self._settler.give_back_all()
        else:
            self._settler.give_back_unclaimed()
        if self._line is not None:
            for asked in self._last_words():
                self._line.tell(Told(asked))

    def _last_words(self) -> Iterator[Asked]:
        settler = self._settler
        untold = settler.ledger.everything_untold()
        turn, release, bury, retry = map(script, ("turn", "release", "bury", "retry"))
        settling = turn_command(
            [],
            holder=settler.holder,
            lease_ms=settler.lease_ms,
            room=0,
            holding=0,
            settles=list(untold.settles),
            max_deaths=settler.max_deaths,
        )
        yield Asked(turn, settling)
        group = [(message_id, fence, int(died)) for message_id, fence, died in untold.releases]
        yield Asked(release, release.command(group=group))
        for message_id, fence, problem in untold.burials:
            yield Asked(bury, bury.command(id=message_id, fence=fence, problem=problem_json(problem)))
        for message_id, fence, delay_ms, problem in untold.retries:
            problem_ = problem_json(problem)
            yield Asked(retry, retry.command(id=message_id, fence=fence, delay_ms=delay_ms, problem=problem_))

    def _is_over(self, looked_s: float, answers: bool, is_busy: bool) -> bool:
        self._away_since_s = None if answers else self._away_since_s or looked_s
        self._quiet_since_s = None if is_busy else self._quiet_since_s or looked_s
        if self._away_since_s is None or self._quiet_since_s is None:
            return False
        now_s = clock.now_s()
        return now_s - self._away_since_s >= AWAY_S and now_s - self._quiet_since_s >= QUIET_S

    def _is_busy(self) -> bool:
        if self._settler.forks:  # its loop may hang, and hears of other tasks' ends no more
            self._settler.read_handoff()
            return self._settler.ledger.is_running()
        return self._settler.ledger.is_running(also_lost=True) or bool(state.active_requests)


def _answers(client: Redis) -> bool:
    try:
        client.setrange(keys.COUNTS + ":none", 0, b"")  # changes nothing; a Redis may answer to reads only
    except ResponseError:
        return True
    except (RedisError, OSError):
        return False
    return True
