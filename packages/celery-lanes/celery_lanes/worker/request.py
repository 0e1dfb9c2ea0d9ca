"""A message of a lane in Celery's consumer and in its request, to the pool and back. Others are received as in Celery.

Guarantees that a message of a lane is acknowledged when it has ended, and returned when its process has died, whatever
the settings and the attributes of its task say, except that `acks_on_failure=False` buries one whose task has failed;
that no rate limit applies to it; that it does not run after it was released; that a terminated one is buried, and that
a revoke from before a replay does not stop the replayed message; and that one that Celery cannot run is buried: a body
that cannot be decoded, or is not [args, kwargs, embed]. Celery would acknowledge the former, which drops it, and raise
an error for the latter before it runs, so that it would be handed out again and again.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from signal import SIGKILL
from time import monotonic
from typing import Any

from billiard.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery import Task, bootsteps
from celery.exceptions import Ignore, Reject
from celery.local import Proxy
from celery.platforms import signals as _signals
from celery.utils.imports import instantiate
from celery.utils.log import get_logger
from celery.worker import state
from celery.worker.request import TERM_SIGNAME, Request
from kombu.exceptions import DecodeError

from celery_lanes.leases import Terminating
from celery_lanes.protocol import envelope
from celery_lanes.protocol.envelope import about
from celery_lanes.runtime import clock
from celery_lanes.runtime.threads import Alarms
from celery_lanes.worker import termination
from celery_lanes.worker.delivery import delivery_from

logger = get_logger(__name__)


class LeasedTask(Proxy):
    """A task as Celery sees it for a message of a lane."""

    __slots__ = ()
    #: The message is settled when the task has ended, and released when its process has died.
    acks_late = reject_on_worker_lost = True

    def __init__(self, task: Any) -> None:
        super().__init__(lambda: task)


class ReceiveLeased(bootsteps.StartStopStep):
    """The consumer's step."""

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        self._consumer = consumer
        self._strategies: dict[str, Any] = {}
        self._update_stock, self._create_stock = consumer.update_strategies, consumer.create_task_handler
        self._stock_error, self._stock_limit = consumer.on_decode_error, consumer._limit_task
        consumer.update_strategies, consumer.create_task_handler = self._update, self._create
        consumer.on_decode_error, consumer._limit_task = self._on_decode_error, self._limit
        super().__init__(consumer, **kwargs)

    def _update(self) -> None:
        self._update_stock()
        app = self._consumer.app
        for name, task in app.tasks.items():
            if task.Strategy == Task.Strategy:
                self._strategies[name] = instantiate(task.Strategy, LeasedTask(task), app, self._consumer)
        # After a reload: the first task with a lane may be new, as in a test that defines it beside celery_worker.
        if self._consumer.task_consumer is not None and (queue := app.amqp.queues.missed()):
            self._consumer.call_soon(self._read, queue)

    def _read(self, queue: str) -> None:
        """Start to read a queue, unless it is read. Celery also calls this when the hub of a stopped worker closes."""
        if self._consumer.blueprint.state == bootsteps.RUN:
            self._consumer.add_task_queue(queue)

    def _create(self) -> Callable[[Any], Any]:
        """The handler of messages: Celery's, twice, with strategies for either kind of queue."""
        consumer = self._consumer
        receive, own = self._create_stock(), consumer.strategies
        consumer.strategies = self._strategies
        receive_leased = self._create_stock()
        consumer.strategies = own

        def on_task_received(message: Any) -> Any:
            if envelope.LANE not in message.headers:
                return receive(message)
            name = message.headers.get("task")
            if name not in self._strategies and name in consumer.app.tasks:
                return self._bury(message)
            if not _can_be_run(message):
                return consumer.on_decode_error(message, DecodeError("it is not [args, kwargs, embed]"))
            return receive_leased(message)

        return on_task_received

    def _bury(self, message: Any) -> None:
        """Bury a message whose task would not run it with its lease, such as one of celery-batches."""
        message_id, task = message.headers["id"], message.headers["task"]
        logger.error(
            "lanes: buried %s: task %s has a Strategy of its own; use it on ordinary queues only",
            message_id,
            task,
            extra=envelope.about(message_id),
        )
        why = f"task {task} has a Strategy of its own, which does not keep its lease"
        self._consumer.app.lanes.in_flight.bury(message.delivery_tag, {"type": "OwnStrategy", "message": why})

    def _on_decode_error(self, message: Any, error: Exception) -> None:
        if "#" in str(message.delivery_tag):
            self._consumer.app.lanes.in_flight.bury(
                message.delivery_tag, {"type": type(error).__name__, "message": f"it cannot be decoded: {error}"}
            )
        self._stock_error(message, error)

    def _limit(self, request: Any, bucket: Any, tokens: int) -> None:
        """A rate limit would hold the first message of a lane in this worker, while others are idle."""
        if envelope.LANE in request.request_dict:
            state.task_reserved(request)
            self._consumer.on_task_request(request)
        else:
            self._stock_limit(request, bucket, tokens)


def _can_be_run(message: Any) -> bool:
    try:
        payload = message.payload
    except Exception:  # Celery gets the same error, and calls on_decode_error
        return True
    if not isinstance(payload, list | tuple):
        return True  # another protocol, or a payload that Celery rejects
    return len(payload) == 3 and (not payload[2] or isinstance(payload[2], dict))


#: How long a terminated handler may take to clean up.
GRACE_S = 10.0
#: The errors with which a terminated run ends. With any other end the run has succeeded or failed on its own.
_TERMINATION_ERRORS = (Terminated, WorkerLostError, SystemExit, Ignore)

_ALARMS = Alarms()


class LaneRequest(Request):
    """A request that does not run after its message was released, and whose message is buried on termination."""

    _termination_signal: int | None = None
    _failure: Any = None

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
        if isinstance(error, TimeLimitExceeded) and self._request_dict.get(envelope.LANE):
            return None  # on_timeout decides; Celery 5.6 would store a failure
        if self._termination_signal is None or self._already_revoked or not isinstance(error, _TERMINATION_ERRORS):
            self._failure = None if isinstance(error, Reject) else exc_info
            return self._fail(exc_info, send_failed_event, return_ok)
        self._app.lanes.in_flight.release(self._message.delivery_tag)
        self._announce_revoked("terminated", True, self._termination_signal, False)
        return None

    def _fail(self, exc_info: Any, *how: bool) -> Any:
        """Celery's end of a run that has failed. If it cannot record that, or ends the worker because of a MemoryError,
        a message that it has not acknowledged yet is buried: nobody else would settle it.
        """
        try:
            return super().on_failure(exc_info, *how)
        except Exception as error:
            if self._request_dict.get(envelope.LANE):
                message = f"its failure could not be recorded: {_text_of(error)}"
                problem = {"type": type(error).__name__, "message": message, "traceback": exc_info.traceback}
                self._app.lanes.in_flight.bury(self._message.delivery_tag, problem)
            raise

    def reject(self, requeue: bool = False) -> None:
        """Bury a message with the error of its task, which Celery rejects with `acks_on_failure=False`. The task of one
        whose process has died fails with its last death.
        """
        error = self._failure and getattr(self._failure.exception, "exc", self._failure.exception)
        if error is not None and not requeue:
            problem = {"type": type(error).__name__, "message": _text_of(error), "traceback": self._failure.traceback}
            self._app.lanes.in_flight.bury(self._message.delivery_tag, problem)
        super().reject(requeue)
        lane = self._request_dict.get(envelope.LANE)
        if requeue and isinstance(error, WorkerLostError | SystemExit) and self._is_last_death(lane):
            lost = WorkerLostError(_text_of(error))
            self.task.backend.mark_as_failure(self.id, lost, request=self._context, store_result=self.store_errors)
            self.send_event("task-failed", exception=repr(lost), traceback=self._failure.traceback)

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

        The message is released now, so the child is killed first: it must not continue. Its task fails with its last
        death; before, it runs again and has no result.
        """
        lane = self._request_dict.get(envelope.LANE)
        if soft or lane is None:
            super().on_timeout(soft, timeout)
            return
        if self._app.lanes.in_flight.forks:
            self._kill_child(lane)
        # Released before super().on_timeout, which in Celery 5.6 acknowledges it and would settle it.
        self._app.lanes.in_flight.release(self._message.delivery_tag, died=True)
        if self._is_last_death(lane):
            super().on_timeout(soft, timeout)
            return
        state.task_ready(self)
        logger.error("Hard time limit (%ss) exceeded for %s[%s]", timeout, self.name, self.id, extra=about(self.id))
        self.send_event("task-retried", exception=repr(TimeLimitExceeded(timeout)), traceback="")

    def _kill_child(self, lane: dict[str, Any]) -> None:
        if self.worker_pid is not None:
            _kill(self.worker_pid)
        self._app.lanes.in_flight.reports.read()  # the run may have ended before this process noticed the limit
        try:
            self.task.on_hard_limit(delivery_from(lane, self._message.delivery_tag, self._app.lanes))
        except Exception:
            logger.exception("lanes: on_hard_limit failed for %s; it counts as a death", self.id, extra=about(self.id))

    def _is_last_death(self, lane: dict[str, Any] | None) -> bool:
        """True if the message will be buried: its task has failed. Otherwise it runs again, and has no result yet."""
        return lane is not None and bool(lane["died"] + 1 >= self._app.lanes.in_flight.max_deaths)

    def _forget_old_revoke(self, lane: dict[str, Any]) -> None:
        """Ignore a revoke from before the replay: it applied to an earlier run."""
        revoked_at_s = termination.revoked_at_s(self.id)
        if lane["replayed_s"] is None or revoked_at_s is None:
            return
        # `replayed_s` is the time from the replay to the hand-out.
        handed_out_s = lane["deadline_s"] - self._app.lanes.in_flight.lease_s
        if monotonic() - revoked_at_s > lane["replayed_s"] + clock.now_s() - handed_out_s:
            termination.forget(self.id)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failure:
        return f"(its text failed: {type(failure).__name__})"


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, SIGKILL)
