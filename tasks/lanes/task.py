"""The task class and the request class that lanes need of a Celery app.

Promises that a task of a lane queue starts only with a valid lease, and that it is settled when it has ended as Celery
would have acknowledged it. Tasks on ordinary queues are Celery's own.
"""

from __future__ import annotations

import contextlib
import os
import signal
from time import monotonic
from typing import Any

from celery import Task, signals, states
from celery.exceptions import Ignore, Reject, Retry, SoftTimeLimitExceeded
from celery.utils.log import get_task_logger
from celery.worker import state
from celery.worker.request import Request
from greenlet import GreenletExit  # type: ignore[import-untyped]
from redis.exceptions import RedisError

from tasks.lanes import clock, envelope
from tasks.lanes.answers import Outcome
from tasks.lanes.delivery import Delivery, delivery_from, delivery_of
from tasks.lanes.discreet import about
from tasks.lanes.endings import as_exceptions
from tasks.lanes.errors import LeaseLost
from tasks.lanes.handoff import DONE

logger = get_task_logger(__name__)


class LaneRequest(Request):
    """A request that refuses to run once it was given back."""

    def revoked(self) -> bool:
        """Celery asks this right before it gives a request to the pool."""
        told = self._request_dict.get(envelope.LANE)
        if told is None:
            return bool(super().revoked())
        self._forget_old_revoke(told)
        if super().revoked():
            return True
        lanes = self._app.lanes
        tag = self._message.delivery_tag
        # What a forking pool is given starts in a child, which cannot ask: it is claimed here and never given back.
        runs = lanes.settler.claim(tag, starts=False) if lanes.settler.forks else lanes.settler.holds(tag)
        if not runs:
            logger.debug("lanes: %s was given back before it started", self.id, extra=about(self.id))
            state.task_ready(self)
        return not runs

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """A prefork pool calls this before it ends a child that went over its hard limit, which takes a while.

        The message goes back now, so nothing of the child may go on.
        """
        told = self._request_dict.get(envelope.LANE)
        if not soft and told is not None and self._app.lanes.settler.forks:
            if self.worker_pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.worker_pid, signal.SIGKILL)
            try:
                self.task.on_hard_limit(delivery_from(told, self._message.delivery_tag, self._app.lanes))
            except Exception:
                logger.exception("lanes: %s counts as a death", self.id, extra=about(self.id))
        super().on_timeout(soft, timeout)

    def _forget_old_revoke(self, told: dict[str, Any]) -> None:
        """A revoke that came before the replay was meant for the run before it."""
        revoked_at = state.revoked._data.get(self.id, (None,))[0]
        if told["replayed_s"] is None or revoked_at is None:
            return
        # The time since the replay was taken at the hand-out.
        handed_out_s = told["deadline_s"] - self._app.lanes.settler.lease_s
        if monotonic() - revoked_at > told["replayed_s"] + clock.now_s() - handed_out_s:
            state.revoked.discard(self.id)


class LaneTask(Task):
    """The base of every task of the app (install.py)."""

    abstract = True
    Request = "tasks.lanes.task:LaneRequest"
    #: The message is settled when the task has ended, and given back when its process died.
    acks_late = True
    reject_on_worker_lost = True
    #: A hard time limit kills the process: to be counted as a death, not to be taken for the end of the run.
    acks_on_timeout = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        delivery = self.delivery
        if delivery is None:  # on an ordinary queue, or called by hand
            return super().__call__(*args, **kwargs) if self.request.called_directly else self.run(*args, **kwargs)
        try:
            delivery.start()
        except LeaseLost as lost:
            logger.info("lanes: not run: %s", lost)
            raise Ignore(str(lost)) from None
        except (RedisError, SoftTimeLimitExceeded) as away:
            raise Reject(f"could not ask Redis for the lease of {delivery.id}: {away}", requeue=True) from None
        try:
            with as_exceptions():
                return self.run(*args, **kwargs)
        except GreenletExit:
            # A cold shutdown ends greenlets like this, and Celery takes it for success: it would be settled unfinished.
            self.app.lanes.settler.give_back(delivery.tag)
            raise

    def on_hard_limit(self, delivery: Delivery) -> None:
        """In the main process, when the child that ran it was killed at its hard limit. What is not evicted counts as
        a death.
        """

    @property
    def delivery(self) -> Delivery | None:
        """The message that is run now; None when it did not come through a lane."""
        return delivery_of(self.request, self.app.lanes)

    def retry(self, *args: Any, exc: BaseException | None = None, countdown: float | None = None, **kw: Any) -> Any:
        """As Celery's, but in its place: it stays first, its lanes wait `countdown` seconds, nothing is published."""
        delivery = self.delivery
        if delivery is None:
            return super().retry(*args, exc=exc, countdown=countdown, **kw)
        most = kw.get("max_retries", self.max_retries)
        if most is not None and delivery.failed >= most:
            raise exc or self.MaxRetriesExceededError(f"{self.name}[{delivery.id}] failed {delivery.attempt} times")
        delay_s = self.default_retry_delay if countdown is None else countdown
        problem = {"type": type(exc).__name__ if exc else "Retry", "message": str(exc or "")}
        if delivery.retry(delay_s=delay_s, problem=problem) is Outcome.LOST:
            raise Ignore(f"the lease of {delivery.id} is over")
        reason = Retry(exc=exc, when=delay_s)
        if kw.get("throw", True):
            raise reason
        return reason


def _settle_early(sender: LaneTask, state: str | None = None, **_: Any) -> None:
    """At the end of a task, before its outcome takes Celery's way to the main process, which sometimes loses it."""
    if not isinstance(sender, LaneTask):
        return
    acked = state == states.SUCCESS or (state == states.FAILURE and sender.acks_on_failure is not False)
    delivery = sender.delivery if acked else None
    if delivery is not None:
        sender.app.lanes.settler.report(DONE, delivery.tag)


def connect_signals() -> None:
    signals.task_postrun.connect(_settle_early, weak=False, dispatch_uid="tasks.lanes.settle_early")
