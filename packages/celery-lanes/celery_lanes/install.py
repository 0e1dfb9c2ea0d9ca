"""Installs lanes in a Celery app: `lanes.install(app)`, before the app is used.

The app's workers, publishers and Flower then use the lanes transport with the usual URLs; other apps of the process do
not. Guarantees that a worker whose configuration would break the order of lanes does not start.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import cached_property, partial
from importlib import import_module
from typing import Any

from celery import Celery, bootsteps, signals
from celery.exceptions import CPendingDeprecationWarning
from celery.utils.imports import symbol_by_name
from celery.utils.log import get_task_logger

from celery_lanes.errors import Misconfigured
from celery_lanes.fast import table
from celery_lanes.leases import InFlight, Pool, ReportChannel, in_flight_of
from celery_lanes.monitoring import log_filters
from celery_lanes.monitoring.events import GatherEvents, show_events_in_banner
from celery_lanes.protocol import Store, Texts, connect_like, use_texts
from celery_lanes.transport import publish, release_5_6
from celery_lanes.transport.routing import LaneQueues, LaneRouter
from celery_lanes.transport.transport import LanesConnection, LanesTransport
from celery_lanes.words import NEUTRAL, Words
from celery_lanes.worker.interrupt_listener import InterruptListener
from celery_lanes.worker.pools import adapt_pool, end_with_parent
from celery_lanes.worker.request import ReceiveLeased
from celery_lanes.worker.shutdown import ShutdownStep, force_exits, is_stopping, share_with_children
from celery_lanes.worker.task import LaneTask, Trace, in_lanes, put_in_lanes

logger = get_task_logger(__name__)

#: Celery settings that suit lanes, each with its reason. Whatever the app sets, in any way, overrides them.
DEFAULTS: dict[str, Any] = {
    # On by default in Celery 6, where it would kill handlers whose leases are still valid.
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    # The in-flight table limits the fetches; a reduced prefetch would only slow a worker down after a reconnect.
    "worker_enable_prefetch_count_reduction": False,
    # The most messages per slot, including the one that runs; prefetch.py decides how many are fetched.
    "worker_prefetch_multiplier": 16,
    # After an outage of the broker, workers must reconnect; giving up after 100 attempts would end every worker.
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    # Redis refuses commands while it is a replica, out of memory or busy; without this, that would end every worker.
    "broker_channel_error_retry": True,
    # True: a run is notified at once that a message has stopped it (lanes.headers(stops=True)).
    "lanes_control": False,
    # Two beats publish each firing of an entry with lane keys once.
    "beat_scheduler": "celery_lanes.transport.beat:LanesScheduler",
}


class Lanes:
    """The lanes of an app: `app.lanes`. The pieces of fast/ replace `make_tracer` and `make_channel`."""

    def __init__(
        self, app: Celery, fast: bool | Callable[[], bool] = True, words: Words = NEUTRAL, commands: str = ""
    ) -> None:
        self._app = app
        self._fast = fast
        self.words = words
        self.commands = commands
        self.make_tracer: Callable[[LaneTask, Trace], Trace] = lambda _task, tracer: tracer
        self.make_channel: Callable[[], ReportChannel] = ReportChannel
        self._interrupt_listener: dict[int, InterruptListener] = {}
        #: The hard time limit of the worker, for tasks without their own.
        self.time_limit_s: float | None = None

    @cached_property
    def in_flight(self) -> InFlight:
        """The in-flight table of the worker's main process; its children use only the report channel of their copy."""
        return in_flight_of(self._app.connection_for_read(), self.make_channel, self.words)

    @property
    def is_fast(self) -> bool:
        return self._fast() if callable(self._fast) else self._fast

    @cached_property
    def is_controlled(self) -> bool:
        return bool(self._app.conf.lanes_control)

    @cached_property
    def store(self) -> Store:
        return Store(connect_like(self._app.connection_for_write()))

    @property
    def interrupt_listener(self) -> InterruptListener:
        """The runs of this process that may be interrupted."""
        pid = os.getpid()
        if pid not in self._interrupt_listener:
            connect = partial(connect_like, self._app.connection_for_write())
            self._interrupt_listener = {pid: InterruptListener(self.in_flight.holder, connect)}
        return self._interrupt_listener[pid]


def install(
    app: Celery,
    *,
    fast: bool | Callable[[], bool] = True,
    words: Words = NEUTRAL,
    commands: str = "",
    timer_texts: Texts = (),
) -> Lanes:
    """Make an app's lane queues keep their order; `app.lanes` and the return value give access to the store.

    If `fast` is true, or a function that returns true when the worker starts, the pieces of fast/table.py are applied.
    Without them every promise holds, with Celery's own pools, requests and tracer.
    A package that builds on lanes gives its own `words` for log lines and commands, and in `commands` the path
    (`module:class`) of a subclass of celery_lanes.cli.context.Context, which extends `celery -A … lanes`.
    `timer_texts` are texts that many of its timers contain, by version; they take one byte each in Redis (use_texts).
    """
    use_texts(timer_texts)
    app.amqp.Connection = LanesConnection
    app._pool = app.amqp._producer_pool = None  # those of an app that has connected before
    _route_by_lanes(app)
    app.send_task = partial(_send_task, app)
    app.lanes = Lanes(app, fast, words, commands)
    app.task_cls = LaneTask if app.task_cls == Celery.task_cls else in_lanes(symbol_by_name(app.task_cls))
    if app.finalized:
        put_in_lanes(app.tasks.values())
    app.on_after_finalize.connect(lambda sender, **_: put_in_lanes(sender.tasks.values()), weak=False)
    app.control_cls = "celery_lanes.worker.termination:LanesControl"
    app.events.dispatcher_cls = "celery_lanes.monitoring.events:TaskEventDispatcher"
    if app.configured:
        _add_defaults(app.conf)
    app.on_after_configure.connect(_add_defaults, weak=False)
    app.steps["worker"].add(LanesStep)
    app.steps["consumer"].update((ReceiveLeased, ShutdownStep, GatherEvents))
    if release_5_6.IS_CELERY:
        app.steps["consumer"].add(release_5_6.KeepAddedQueues)
    signals.celeryd_init.connect(show_events_in_banner, weak=False)
    # Importing the module registers its remote-control commands with Celery.
    import_module("celery_lanes.monitoring.remote_control")
    log_filters.install()
    return app.lanes


def _route_by_lanes(app: Celery) -> None:
    amqp = app.amqp
    amqp.queues_cls = partial(LaneQueues, app)
    amqp.Router = lambda queues=None, create_missing=None: LaneRouter(
        amqp.routes, queues or amqp.queues, app.either("task_create_missing_queues", create_missing), app=app
    )
    for made in ("queues", "router"):  # in an app that was used before
        vars(amqp).pop(made, None)


def _send_task(
    app: Celery,
    name: str,
    args: Any = None,
    kwargs: Any = None,
    countdown: Any = None,
    eta: Any = None,
    task_id: str | None = None,
    *more: Any,
    **options: Any,
) -> Any:
    """Celery's `send_task`, which every publish of a task calls, with the id of a `once`."""
    task_id = task_id or publish.id_of(options.get("headers"))
    return type(app).send_task(app, name, args, kwargs, countdown, eta, task_id, *more, **options)


def _add_defaults(source: Any, **_: Any) -> None:
    """Below the settings of the app and above Celery's own defaults, which come last."""
    for maps in (source.maps, source.defaults):
        maps.insert(-1, DEFAULTS)


def check_transport(app: Celery) -> None:
    """Raises Misconfigured if a URL of the app does not use the lanes transport, or lacks what a client needs."""
    for opened in (app.connection_for_read(), app.connection_for_write()):
        with opened as connection:
            cls = connection.get_transport_cls()
            if not issubclass(cls, LanesTransport):
                raise Misconfigured(
                    f"the broker {connection.as_uri()} is used through {cls.__module__}.{cls.__name__}, not through "
                    "lanes: call lanes.install(app) before anything connects, and use a redis://, rediss:// or "
                    "sentinel:// URL"
                )
            try:
                connect_like(connection).close()
            except ValueError as error:
                raise Misconfigured(f"the broker {connection.as_uri()} cannot be used: {error}") from None


class LanesStep(bootsteps.StartStopStep):
    """The worker's step. It is created before the pool forks, so that the children inherit the report channel."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        check_transport(worker.app)
        put_in_lanes(worker.app.tasks.values())  # those that were made after the app was finalized
        self._warn_of_rate_limits(worker.app)
        super().__init__(worker, **kwargs)

    def create(self, worker: Any) -> Any:
        if worker.prefetch_multiplier <= 0:
            raise Misconfigured(
                "worker_prefetch_multiplier must be at least 1: unlimited prefetch would hold every lane"
            )
        pool = worker.pool
        worker.app.lanes.time_limit_s = worker.time_limit
        # A full gevent pool blocks the loop that passes it a message, so nothing is prefetched for it.
        spare = 0 if getattr(pool, "is_green", False) else worker.prefetch_multiplier - 1
        if worker.app.lanes.is_fast:
            table.apply(worker)
        lanes_pool = Pool(
            slots=partial(_slots, pool),
            forks=pool.uses_semaphore,
            spare=spare,
            claims=getattr(pool, "claims_messages", False),
        )
        worker.app.lanes.in_flight.capacity.use_pool(lanes_pool)
        if pool.uses_semaphore:
            end_with_parent()
        share_with_children()
        return None

    def start(self, worker: Any) -> None:
        """Called by Celery after the pool has started and before the consumer starts."""
        # At every reconnect Celery would recommend an option that must be off here (DEFAULTS).
        warnings.filterwarnings("ignore", "\nIn Celery 5.1 we introduced", CPendingDeprecationWarning)
        lanes = worker.app.lanes
        adapt_pool(worker.pool, lanes.in_flight.release_ids)
        # Forked children listen for themselves. While gevent starts, another thread may not import anything.
        if lanes.is_controlled and not (worker.pool.uses_semaphore or getattr(worker.pool, "is_green", False)):
            lanes.interrupt_listener.start()
        force_exits(worker)

    @staticmethod
    def _warn_of_rate_limits(app: Celery) -> None:
        for name, task in app.tasks.items():
            if task.rate_limit:
                logger.warning("lanes: the rate_limit of task %s does not apply to its messages in lanes", name)


def _slots(pool: Any) -> int:
    if is_stopping():
        return 0  # with gevent the consumer stops up to 2 s later, and would continue to fetch until then
    try:
        # For a gevent pool, num_processes of Celery 5.6 counts the running greenlets.
        return (pool._pool.size if pool.is_green else pool.num_processes) or 1
    except (AttributeError, TypeError):  # the pool has stopped, the background thread has not
        return 1
