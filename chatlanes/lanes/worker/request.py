"""Celery's request for a message of a lane queue, from the consumer to the pool and back.

Guarantees that a message does not run after it was released, that a terminated one is buried, and that a revoke from
before a replay does not stop the replayed message.
"""

from __future__ import annotations

import contextlib
import os
import threading
from signal import SIGKILL
from time import monotonic
from typing import Any

from billiard.exceptions import Terminated, WorkerLostError
from celery.exceptions import Ignore
from celery.platforms import signals as _signals
from celery.utils.log import get_task_logger
from celery.worker import state
from celery.worker.request import TERM_SIGNAME, Request

from chatlanes.lanes.leases.in_flight import Terminating
from chatlanes.lanes.protocol import envelope
from chatlanes.lanes.protocol.envelope import about
from chatlanes.lanes.runtime import clock
from chatlanes.lanes.runtime.alarms import Alarms
from chatlanes.lanes.worker import termination
from chatlanes.lanes.worker.delivery import delivery_from

logger = get_task_logger(__name__)

#: How long a terminated handler may take to clean up.
GRACE_S = 10.0
#: The errors with which a terminated run ends. With any other end the run has succeeded or failed on its own.
_TERMINATION_ERRORS = (Terminated, WorkerLostError, SystemExit, Ignore)

_ALARMS = Alarms()


class LaneRequest(Request):
    """A request that does not run after its message was released, and whose message is buried on termination."""

    _termination_signal: int | None = None

    def revoked(self) -> bool:
        """Called by Celery right before it passes a request to the pool."""
        lane = self._request_dict.get(envelope.LANE)
        if lane is None:
            return bool(super().revoked())
        self._forget_old_revoke(lane)
        if self.id in state.revoked and termination.is_requested(self.id) and not self._already_revoked:
            logger.warning("lanes: %s is terminated before it starts", self.id, extra=about(self.id))
            problem = termination.problem_of(self.id, self._hostname)
            self._app.lanes.in_flight.bury(self._message.delivery_tag, problem)
        return bool(super().revoked()) or self._is_released()

    def send_event(self, type: str, **fields: Any) -> None:  # noqa: A002 - Celery's word
        super().send_event(type, **self.event_fields(type), **fields)

    def event_fields(self, type: str) -> dict[str, Any]:  # noqa: A002 - Celery's word
        """The attempt, which Celery does not count after a death, and when the run has started, which a forked child
        reports later.
        """
        lane = self._request_dict.get(envelope.LANE)
        if lane is None:
            return {}
        started = {"timestamp": self.time_start} if type == "task-started" else {}
        return {"attempt": lane["failed"] + lane["died"] + 1, **started}

    @property
    def is_running(self) -> bool:
        return self in state.active_requests

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        super().on_accepted(pid, time_accepted)
        if envelope.LANE not in self._request_dict:
            self._app.lanes.in_flight.capacity.ordinary_started(self)

    def terminate(self, pool: Any, signal: Any = None) -> None:
        """Bury the message: at once if it has not started, otherwise when its process or greenlet has ended, or by
        eviction where the pool cannot end it. Celery would acknowledge it at once, which would settle it.
        """
        if self._request_dict.get(envelope.LANE) is None:
            super().terminate(pool, signal)
            return
        in_flight, tag = self._app.lanes.in_flight, self._message.delivery_tag
        signum = _signals.signum(signal or TERM_SIGNAME)
        in_flight.reports.poll()
        outcome = in_flight.terminate(tag, termination.problem_of(self.id, self._hostname, signum))
        if outcome is Terminating.RUNS and self.time_start is None:
            self._terminate_on_ack = pool, signal
        elif outcome is Terminating.RUNS:
            self._termination_signal = signum
            self._end(pool, signum)

    def _end(self, pool: Any, signum: int) -> None:
        logger.warning("lanes: %s is terminated", self.id, extra=about(self.id))
        if self._app.lanes.in_flight.forks:
            pool.terminate_job(self.worker_pid, signum)
            _ALARMS.on(GRACE_S, self._kill_if_running)
        elif getattr(pool, "is_green", False):
            # In a greenlet (gevent patches Thread), because it waits until the other greenlet has ended.
            threading.Thread(target=pool.terminate_job, args=(self.worker_pid, signum), daemon=True).start()
            _ALARMS.on(GRACE_S, lambda: self._evict(signum))
        else:
            self._evict(signum)

    def _kill_if_running(self) -> None:
        if self._app.lanes.in_flight.holds(self._message.delivery_tag):
            _kill(self.worker_pid)

    def _evict(self, signum: int) -> None:
        """Bury the message; its slot stays taken until the handler ends."""
        problem = termination.problem_of(self.id, self._hostname, signum)
        if self._app.lanes.in_flight.evict(self._message.delivery_tag, None, problem):
            self._already_revoked = True
            logger.warning("lanes: %s is buried; its handler is still running", self.id, extra=about(self.id))
            self.send_event("task-revoked", terminated=True, signum=signum, expired=False)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        if self._termination_signal is None or self._already_revoked or not isinstance(error, _TERMINATION_ERRORS):
            return super().on_failure(exc_info, send_failed_event, return_ok)
        self._app.lanes.in_flight.release(self._message.delivery_tag)
        self._announce_revoked("terminated", True, self._termination_signal, False)
        return None

    def _is_released(self) -> bool:
        in_flight, tag = self._app.lanes.in_flight, self._message.delivery_tag
        # In a forking pool the message starts in a child, which cannot read the table: claim it here, unless the pool
        # claims messages itself.
        claims = in_flight.forks and not in_flight.capacity.pool.claims
        runs = in_flight.claim(tag, starts=False) if claims else in_flight.holds(tag)
        if not runs:
            logger.debug("lanes: %s was released before it started", self.id, extra=about(self.id))
            state.task_ready(self)
        return not runs

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Called by a prefork pool before it ends a child that exceeded its hard limit, which takes a while.

        The message is released now, so the child is killed first: it must not continue.
        """
        lane = self._request_dict.get(envelope.LANE)
        if not soft and lane is not None and self._app.lanes.in_flight.forks:
            if self.worker_pid is not None:
                _kill(self.worker_pid)
            try:
                self.task.on_hard_limit(delivery_from(lane, self._message.delivery_tag, self._app.lanes))
            except Exception:
                logger.exception(
                    "lanes: on_hard_limit failed for %s; it counts as a death", self.id, extra=about(self.id)
                )
            # Released before super().on_timeout, which in Celery 5.6 acknowledges it and would settle it.
            self._app.lanes.in_flight.release(self._message.delivery_tag, died=True)
        super().on_timeout(soft, timeout)

    def _forget_old_revoke(self, lane: dict[str, Any]) -> None:
        """Ignore a revoke from before the replay: it applied to an earlier run."""
        revoked_at = state.revoked._data.get(self.id, (None,))[0]
        if lane["replayed_s"] is None or revoked_at is None:
            return
        # `replayed_s` is the time from the replay to the hand-out.
        handed_out_s = lane["deadline_s"] - self._app.lanes.in_flight.lease_s
        if monotonic() - revoked_at > lane["replayed_s"] + clock.now_s() - handed_out_s:
            state.revoked.discard(self.id)
            termination.forget(self.id)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, SIGKILL)
