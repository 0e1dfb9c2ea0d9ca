"""The base class of the tasks of an app with lanes.

Guarantees that a task of a lane queue starts only with a valid lease, and that it is settled when it has ended in a way
that Celery acknowledges. Tasks on ordinary queues behave as in Celery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, NoReturn, Protocol

from billiard.einfo import ExceptionInfo
from celery import Task
from celery.app.trace import TraceInfo, report_internal_error, trace_ok_t
from celery.backends.redis import RedisBackend
from celery.exceptions import Ignore, Reject, Retry, SoftTimeLimitExceeded
from celery.states import FAILURE, IGNORED, REJECTED
from celery.utils import uuid
from celery.utils.imports import symbol_by_name
from celery.utils.log import get_task_logger
from celery.utils.time import maybe_iso8601, maybe_make_aware
from redis.exceptions import RedisError

from celery_lanes.errors import Interrupted, LanesError, LeaseLost, RedisAway
from celery_lanes.leases import DONE
from celery_lanes.protocol import Outcome, envelope
from celery_lanes.runtime import threads
from celery_lanes.transport import publish
from celery_lanes.transport.routing import Lane, lane_of
from celery_lanes.worker import eager
from celery_lanes.worker.delivery import Delivery, delivery_from, delivery_of
from celery_lanes.worker.shutdown import check_is_exception

logger = get_task_logger(__name__)


Trace = Callable[..., Any]

#: The claim of a chord whose body has been published (Celery).
_CHORD_DONE = b"done"


#: How long a message waits whose task could not begin, because the result backend could not store STARTED, for example.
NOT_BEGUN_S = 5.0


class SettlingTracer:
    """Reports the message as done when the run has ended and Celery would acknowledge it.

    Celery's own acknowledgement follows, but in a prefork pool the result that it depends on can get lost. An error
    that leaves Celery's tracer, which no pool but prefork reports, ends the run as a failure. If it had not begun, its
    message waits.
    """

    def __init__(self, task: LaneTask, tracer: Trace) -> None:
        self._task = task
        self.tracer = tracer

    def __call__(self, uuid: str, args: Any, kwargs: Any, request: dict[str, Any] | None = None) -> Any:
        if not request or not request.get(envelope.LANE):
            return self.tracer(uuid, args, kwargs, request)
        try:
            ended = self.tracer(uuid, args, kwargs, request)
        except Exception as error:
            ended = self._unrecorded(error, uuid, request)
        is_acknowledged = getattr(self._task, "acks_on_failure", None) is not False  # since Celery 5.7
        if ended.info is None or (ended.info.state == FAILURE and is_acknowledged):
            self._task.app.lanes.in_flight.reports.send(DONE, request["properties"]["delivery_tag"])
        return ended

    def _unrecorded(self, error: Exception, uuid: str, request: dict[str, Any]) -> Any:
        """The end of a run that Celery could not record: its result backend does not answer, or a hook has failed.
        Called in the `except` block of the error.
        """
        if request[envelope.LANE].get("started"):
            logger.error("lanes: %s has ended, and Celery could not record how: %r", uuid, error)
            state = REJECTED if isinstance(error, Reject) else FAILURE
            return trace_ok_t(report_internal_error(self._task, error), TraceInfo(state, error), None, None)
        logger.error("lanes: %s has not begun, and waits for %.0f s: %r", uuid, NOT_BEGUN_S, error)
        delivery = delivery_from(request[envelope.LANE], request["properties"]["delivery_tag"], self._task.app.lanes)
        end: Ignore | Reject = Ignore(f"{uuid} waits")
        try:
            delivery.park(delay_s=NOT_BEGUN_S, kind="NotBegun", reason=f"it could not begin: {error!r}")
        except (RedisError, LanesError) as away:
            delivery.release()
            end = Reject(f"{uuid} is released uncounted: {away}", requeue=True)
        try:
            raise end
        except (Ignore, Reject):
            state = IGNORED if isinstance(end, Ignore) else REJECTED
            return trace_ok_t(ExceptionInfo(internal=True), TraceInfo(state, end), None, None)


class Loop(Protocol):
    """Runs jobs on the thread of an event loop."""

    def begin_job(self, job: Callable[[], object]) -> None:
        """Start the job soon; callable from any thread. The job must not raise."""


class LaneTask(Task):
    """Every task of the app has this class: as its only base, or behind those that it has (`in_lanes`)."""

    abstract = True
    _is_in_lanes = True
    #: The keys by which its messages are ordered (transport/routing.py).
    lane: Lane | None = None
    Request = "celery_lanes.worker.request:LaneRequest"

    _trace: SettlingTracer | None = None
    _is_unordered_known = False

    @property
    def __trace__(self) -> SettlingTracer | None:
        """Set by Celery in each process, and called to run the task."""
        return self._trace

    @__trace__.setter
    def __trace__(self, stock: Trace | None) -> None:
        self._trace = SettlingTracer(self, self.app.lanes.make_tracer(self, stock)) if stock else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        delivery = self.delivery
        if delivery is None and self.request.called_directly:
            return super().__call__(*args, **kwargs)
        if delivery is None or delivery.is_started:  # on an ordinary queue, or called by another class's __call__
            self._warn_if_unordered(delivery)
            return self.run(*args, **kwargs)
        return self.run_leased(delivery, args, kwargs)

    def _warn_if_unordered(self, delivery: Delivery | None) -> None:
        """On an ordinary queue, a function may have returned None for this message; a template always gives keys."""
        lane, request = lane_of(self), self.request
        is_ordered = callable(lane) if delivery is None else not delivery.is_foreign
        if lane is None or is_ordered or self._is_unordered_known:
            return
        self._is_unordered_known = True
        queue = (request.delivery_info or {}).get("routing_key")
        logger.warning(
            "lanes: %s has a lane, and a message of it came through the %s queue %s, in no order: its publisher "
            "does not know the lane. Import the task there, or name the lane in its task_routes, with lanes.install",
            self.name,
            "lane" if delivery else "ordinary",
            queue,
        )

    def run_started(self, *args: Any, **kwargs: Any) -> Any:
        """The task itself, or what its class has instead of Celery's `__call__`."""
        return self.run(*args, **kwargs)

    def run_leased(self, delivery: Delivery, args: Any, kwargs: Any) -> Any:
        """Run a message of a lane if its lease is valid. An outage of Redis does not count as a failure of the task."""
        try:
            delivery.start()
            claimed_s = claimed_for_s(self) if delivery.died else 0.0
        except LeaseLost as lost:
            delivery.release_if_refused()
            logger.info("lanes: not run: %s", lost)
            raise Ignore(str(lost)) from None
        except (RedisError, SoftTimeLimitExceeded) as away:
            raise Reject(f"could not ask Redis for the lease of {delivery.id}: {away}", requeue=True) from None
        if delivery.is_foreign:
            self._warn_if_unordered(delivery)
        try:
            if claimed_s:
                delivery.park(delay_s=claimed_s, kind="Chord", reason="its worker died while it published the body")
                raise Ignore(f"{delivery.id} waits until the claim of its chord has expired")
            if delivery.is_stopped:
                self._end_stopped(delivery)
            return self._run_in_lease(delivery, args, kwargs)
        except Interrupted as interrupted:
            logger.info("lanes: %s", interrupted)
            raise Ignore(str(interrupted)) from None
        except RedisAway as away:
            delivery.release()
            raise Reject(f"{delivery.id} is released uncounted: {away}", requeue=True) from None
        except BaseException as error:
            self._check_end(delivery, error)
            raise
        finally:
            delivery.end_listening()
            delivery.release_if_refused()

    def _check_end(self, delivery: Delivery, error: BaseException) -> None:
        """Returns if the error is that of the run. Raises HandlerEndedError or Ignore instead of one that Celery would
        take for a success, which would settle an unfinished run.
        """
        limit_s = (self.request.timelimit or [None])[0] or self.time_limit or self.app.lanes.time_limit_s
        if limit_s and threads.is_timeout(error, limit_s):  # the hard limit of the gevent pool, which reports it
            self.app.lanes.in_flight.release(delivery.tag, died=True)
            return
        check_is_exception(error)
        # A cold shutdown or a termination
        if threads.is_greenlet_exit(error) and self.app.lanes.in_flight.release(delivery.tag):
            raise Ignore(f"{delivery.id} was terminated") from None

    def _run_in_lease(self, delivery: Delivery, args: Any, kwargs: Any) -> Any:
        """The result. A run that is known to have lost its lease ends without one: another run of the message follows,
        and callbacks, errbacks and chords wait for that.
        """
        try:
            result = self.run_started(*args, **kwargs)
            delivery.leave_arrivals()
        except (Ignore, Interrupted, RedisAway, Reject, Retry):
            raise
        except Exception as error:
            if not delivery.is_without_lease:
                raise
            if not isinstance(error, LeaseLost):
                logger.info("lanes: %s failed after it had lost its lease: %r", delivery.id, error)
            raise Ignore(f"the lease of {delivery.id} is over") from None
        if delivery.is_without_lease:
            raise Ignore(f"the lease of {delivery.id} is over")
        return result

    def _end_stopped(self, delivery: Delivery) -> NoReturn:
        self.on_stopped(delivery)
        request = self.request
        self.backend.mark_as_revoked(request.id, "stopped", request=request, store_result=not request.ignore_result)
        raise Ignore(f"a newer message has stopped {delivery.id}")

    def on_stopped(self, delivery: Delivery) -> None:
        """Called instead of the task when a message with `stops` has stopped this one, once more if the process dies.
        Settles it. `delivery.previous_calls()` are those of the run that was stopped.
        """
        delivery.commit()

    def loop_of(self, message_id: str) -> Loop | None:
        """The loop on whose thread this message may run with -P threads, if its task waits only in coroutines and
        makes its other blocking calls with `run_blocking` (runtime/threads.py). None: it gets its own thread.
        """
        return None

    def on_hard_limit(self, delivery: Delivery) -> None:
        """Called in the main process when the child that ran the message was killed at its hard limit. If it is not
        evicted here, a death is counted.
        """

    @property
    def delivery(self) -> Delivery | None:
        """The delivery of the current run; None if it did not arrive through a lane."""
        if self.request.is_eager:
            return eager.delivery_of(self)
        return delivery_of(self.request, self.app.lanes)

    @property
    def fence(self) -> int:
        """Greater in every run of a message than in all of its runs before, and than in those of the messages before it
        in its lanes. In a column of your own database, it keeps out a worker that has lost its lease
        (docs/databases.md). If the clock of Redis is set back, the next message of a lane may have a lower one; that of
        a run is still greater than those of earlier runs of its message. Raises LanesError without a delivery.
        """
        delivery = self.delivery
        if delivery is None:
            raise LanesError(f"{self.name} has no fence here: only a run that came through a lane has one")
        return int(delivery.fence)

    def apply(
        self,
        args: Any = None,
        kwargs: Any = None,
        link: Any = None,
        link_error: Any = None,
        task_id: str | None = None,
        *more: Any,
        headers: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Celery's eager mode. A task runs after those before it in its lanes."""
        task_id = task_id or publish.id_of(headers) or uuid()
        run = partial(super().apply, args, kwargs, link, link_error, task_id, *more, headers=headers, **options)
        keys = self.app.amqp.router.keys(self.name, args, kwargs, {"headers": headers}, self)
        return run() if keys is None else eager.run_in_lanes(task_id, keys, run)

    def retry(
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: BaseException | None = None,
        throw: bool = True,
        eta: datetime | str | None = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> Any:
        """Like Celery's `retry`, but nothing is published: the message stays first in its lanes, which wait
        `countdown` seconds or until `eta`. Its arguments and options stay as they are.
        """
        delivery = self.delivery
        if delivery is None or self.request.is_eager:
            return super().retry(args, kwargs, exc, throw, eta, countdown, max_retries, **options)
        if max_retries is not None:
            self.override_max_retries = max_retries  # which autoretry_for reads
        most = self.max_retries if max_retries is None else max_retries
        if most is not None and delivery.failed >= most:
            raise exc or self.MaxRetriesExceededError(f"{self.name}[{delivery.id}] failed {delivery.attempt} times")
        if _differ(args, self.request.args) or _differ(kwargs, self.request.kwargs):
            logger.warning("lanes: %s is retried with its first arguments, not with those of retry()", delivery.id)
        delay_s = self.default_retry_delay if countdown is None else countdown
        if eta:
            delay_s = (maybe_make_aware(maybe_iso8601(eta)) - datetime.now(UTC)).total_seconds()
        problem = {"type": type(exc).__name__ if exc else "Retry", "message": str(exc or "")}
        if delivery.retry(delay_s=delay_s, problem=problem) is Outcome.LOST:
            raise Ignore(f"the lease of {delivery.id} is over")
        reason = Retry(exc=exc, when=eta or delay_s)
        if throw:
            raise reason
        return reason


def in_lanes(cls: type[Task]) -> type[Task]:
    """The class of a task with LaneTask behind its own bases, so that their methods are called first. Only `__call__`
    is called after the check of the lease.
    """
    if "_is_in_lanes" in vars(cls):
        return cls
    namespace: dict[str, Any] = {"_is_in_lanes": True, "__module__": cls.__module__, "__doc__": cls.__doc__}
    if cls.__call__ not in (Task.__call__, LaneTask.__call__):
        namespace |= {"__call__": _leased_call(cls), "run_started": cls.__call__}
    elif issubclass(cls, LaneTask):
        return cls
    if cls.Request not in (Task.Request, LaneTask.Request):
        ours, own = symbol_by_name(LaneTask.Request), symbol_by_name(cls.Request)
        namespace["Request"] = own if issubclass(own, ours) else type(own.__name__, (ours, own), {})
    bases = (cls,) if issubclass(cls, LaneTask) else (cls, LaneTask)
    return type(cls.__name__, bases, namespace)


def _leased_call(cls: type[Task]) -> Callable[..., Any]:
    def call(self: LaneTask, *args: Any, **kwargs: Any) -> Any:
        delivery = self.delivery
        if delivery is None or delivery.is_started:
            self._warn_if_unordered(delivery)
            return cls.__call__(self, *args, **kwargs)
        return self.run_leased(delivery, args, kwargs)

    return call


#: The tasks that were warned of.
_misspelled: set[str] = set()


def put_in_lanes(tasks: Iterable[Any]) -> None:
    """Give each of these tasks the class that `in_lanes` makes of its own."""
    for task in tasks:
        is_misspelled = lane_of(task) is None and isinstance(getattr(task, "lanes", None), str | list | tuple)
        if is_misspelled and task.name not in _misspelled:
            _misspelled.add(task.name)
            logger.warning("lanes: task %s has lanes=…, which orders nothing: the option is lane=", task.name)
        cls = in_lanes(type(task))
        if cls is not type(task):
            task.__class__ = cls


def _differ(given: Any, own: Any) -> bool:
    """True if `retry` has other arguments than those of the message; JSON has no tuples."""
    if given is None:
        return False
    return dict(given) != (own or {}) if isinstance(given, Mapping) else list(given) != list(own or ())


def claimed_for_s(task: Any) -> float:
    """How long the chord of the current run is still claimed; 0 if it is not, or its body has been published.

    In Celery's Redis backend (since 5.7), the task of a header that ends last claims the chord for some seconds, and
    publishes the body. If its worker dies in between, the task runs again, finds the claim, and publishes nothing. So a
    task of a chord whose worker has died runs again when no claim is left: the body is not lost.
    """
    request, backend = task.request, task.backend
    if not (request.chord and request.group and isinstance(backend, RedisBackend)):
        return 0.0
    claim = backend.get_key_for_group(request.group, ".c")
    owner = backend.client.get(claim)
    left_ms: int = backend.client.pttl(claim)
    return 0.0 if owner in (None, _CHORD_DONE) else max(left_ms, 1_000) / 1000
