"""A message of a lane queue on its way from the consumer to the pool and back, as Celery's worker sees it.

It does not run once it was given back, and an old revoke does not stop a replay.
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
from chatlanes.lanes.runtime.timers import Alarms
from chatlanes.lanes.worker import termination
from chatlanes.lanes.worker.delivery import delivery_from

logger = get_task_logger(__name__)

#: What a terminated handler has to tidy up in.
GRACE_S = 10.0
#: How a run ends that was terminated. Any other end, good or bad, is its own.
_ENDS = (Terminated, WorkerLostError, SystemExit, Ignore)

_ALARMS = Alarms()


class LaneRequest(Request):
    """A request that refuses to run once it was given back, and is buried when it is terminated."""

    _ends_with: int | None = None  # the signal, once it is being terminated

    def revoked(self) -> bool:
        """Celery asks this right before it gives a request to the pool."""
        told = self._request_dict.get(envelope.LANE)
        if told is None:
            return bool(super().revoked())
        self._forget_old_revoke(told)
        if self.id in state.revoked and termination.is_requested(self.id) and not self._already_revoked:
            logger.warning("lanes: %s is terminated before it starts", self.id, extra=about(self.id))
            problem = termination.problem_of(self.id, self._hostname)
            self._app.lanes.in_flight.bury(self._message.delivery_tag, problem)
        return bool(super().revoked()) or self._was_given_back()

    def terminate(self, pool: Any, signal: Any = None) -> None:
        """Celery's acknowledges at once, which would settle it. It is buried instead: at once if nobody has started it,
        when its process or greenlet has ended, or, where nothing can end it, by eviction.
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
            self._ends_with = signum
            self._end(pool, signum)

    def _end(self, pool: Any, signum: int) -> None:
        logger.warning("lanes: %s is terminated", self.id, extra=about(self.id))
        if self._app.lanes.in_flight.forks:
            pool.terminate_job(self.worker_pid, signum)
            _ALARMS.on(GRACE_S, self._kill_the_deaf)
        elif getattr(pool, "is_green", False):
            # A greenlet, because it waits until the other has ended.
            threading.Thread(target=pool.terminate_job, args=(self.worker_pid, signum), daemon=True).start()
            _ALARMS.on(GRACE_S, lambda: self._evict(signum))
        else:
            self._evict(signum)

    def _kill_the_deaf(self) -> None:
        if self._app.lanes.in_flight.holds(self._message.delivery_tag):
            _kill(self.worker_pid)

    def _evict(self, signum: int) -> None:
        """Its slot is taken until it ends."""
        problem = termination.problem_of(self.id, self._hostname, signum)
        if self._app.lanes.in_flight.evict(self._message.delivery_tag, None, problem):
            self._already_revoked = True
            logger.warning("lanes: %s is buried; its handler runs on", self.id, extra=about(self.id))
            self.send_event("task-revoked", terminated=True, signum=signum, expired=False)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        if self._ends_with is None or self._already_revoked or not isinstance(error, _ENDS):
            return super().on_failure(exc_info, send_failed_event, return_ok)
        self._app.lanes.in_flight.release(self._message.delivery_tag)
        self._announce_revoked("terminated", True, self._ends_with, False)
        return None

    def _was_given_back(self) -> bool:
        in_flight, tag = self._app.lanes.in_flight, self._message.delivery_tag
        # What a forking pool is given starts in a child, which cannot ask: it is claimed here, unless the pool does it.
        claims = in_flight.forks and not in_flight.capacity.pool.claims
        runs = in_flight.claim(tag, starts=False) if claims else in_flight.holds(tag)
        if not runs:
            logger.debug("lanes: %s was given back before it started", self.id, extra=about(self.id))
            state.task_ready(self)
        return not runs

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """A prefork pool calls this before it ends a child that went over its hard limit, which takes a while.

        The message goes back now, so nothing of the child may go on.
        """
        told = self._request_dict.get(envelope.LANE)
        if not soft and told is not None and self._app.lanes.in_flight.forks:
            if self.worker_pid is not None:
                _kill(self.worker_pid)
            try:
                self.task.on_hard_limit(delivery_from(told, self._message.delivery_tag, self._app.lanes))
            except Exception:
                logger.exception("lanes: %s counts as a death", self.id, extra=about(self.id))
            # Celery 5.6 acknowledges it after this.
            self._app.lanes.in_flight.release(self._message.delivery_tag, died=True)
        super().on_timeout(soft, timeout)

    def _forget_old_revoke(self, told: dict[str, Any]) -> None:
        """A revoke that came before the replay was meant for the run before it."""
        revoked_at = state.revoked._data.get(self.id, (None,))[0]
        if told["replayed_s"] is None or revoked_at is None:
            return
        # The time since the replay was taken at the hand-out.
        handed_out_s = told["deadline_s"] - self._app.lanes.in_flight.lease_s
        if monotonic() - revoked_at > told["replayed_s"] + clock.now_s() - handed_out_s:
            state.revoked.discard(self.id)
            termination.forget(self.id)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, SIGKILL)
