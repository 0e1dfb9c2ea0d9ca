"""Replaces Celery's message handler, strategy and request for ordinary messages of lane queues.

Does what Celery does (log line, signal, event, revoked messages, the worker's state), but decodes the body once instead
of twice. Guarantees that every attribute that Celery, its events and `celery inspect` read has the same value, and that
a released message never starts: this is checked when a thread or greenlet is about to run it. Celery still handles
all other messages (`arguments_in`), and tasks with their own strategy or request class.
"""

from __future__ import annotations

import logging
import os
from functools import partial
from time import monotonic, time
from typing import Any, ClassVar

from celery import Task, bootsteps, current_app, signals
from celery.app import trace
from celery.exceptions import TaskRevokedError
from celery.utils.nodenames import gethostname
from celery.worker import request as celerys
from celery.worker import state
from celery.worker.request import ref
from celery.worker.strategy import logger
from kombu.serialization import registry
from kombu.utils import json as kombu_json

from celery_lanes.fast.tracer import Tracer
from celery_lanes.protocol import envelope
from celery_lanes.protocol.codec import loads
from celery_lanes.worker.request import LaneRequest, LeasedTask, ReceiveLeased
from celery_lanes.worker.task import LaneTask


def apply(worker: Any) -> None:
    worker.app.steps["consumer"].add(ReceiveFast)


class ReceiveFast(bootsteps.StartStopStep):
    """A step of the consumer. Its handler is called before that of ReceiveLeased."""

    requires = (ReceiveLeased,)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        self._strategies: dict[str, Strategy] = {}
        self._update_stock, self._create_stock = consumer.update_strategies, consumer.create_task_handler
        self._consumer = consumer
        consumer.update_strategies, consumer.create_task_handler = self._update, self._create
        super().__init__(consumer, **kwargs)

    def _update(self) -> None:
        """Called by Celery for each connection, before it creates the handler."""
        self._update_stock()
        app = self._consumer.app
        self._strategies = {
            name: Strategy(task, self._consumer) for name, task in app.tasks.items() if _is_usual(task, app)
        }

    def _create(self) -> Any:
        stock, strategies, on_task_message = self._create_stock(), self._strategies, self._consumer.on_task_message

        def on_task_received(message: Any) -> Any:
            strategy = strategies.get(message.headers.get("task"))
            arguments = None if strategy is None else arguments_in(message)
            if strategy is None or arguments is None:
                return stock(message)
            return strategy.receive(message, arguments, on_task_message)

        return on_task_received


def _is_usual(task: Any, app: Any) -> bool:
    return (
        isinstance(task, LaneTask)
        and task.Request == LaneTask.Request
        and task.Strategy == Task.Strategy
        and registry._decoders.get(envelope.JSON) is kombu_json.loads
        # Celery counts acknowledgements to restore the prefetch count.
        and not app.conf.worker_enable_prefetch_count_reduction
    )


class Strategy:
    """Receives the ordinary messages of one task."""

    def __init__(self, task: LaneTask, consumer: Any) -> None:
        self._task, self._consumer = task, consumer
        self._make_request = FastRequest.of(LeasedTask(task), consumer)
        self._dispatcher = consumer.event_dispatcher
        self._logs = logger.isEnabledFor(logging.INFO)

    def receive(self, message: Any, arguments: Arguments, callbacks: Any) -> None:
        request = self._make_request(message, arguments)
        if self._logs:
            _log(request)
        if request.id in state.revoked and request.revoked():
            return
        if signals.task_received.receivers:
            signals.task_received.send(sender=self._consumer, request=request)
        if self._dispatcher and self._dispatcher.sends_task_events and self._task.send_events:
            _send_event(self._dispatcher, request)
        state.task_reserved(request)
        for callback in callbacks or ():
            callback(request)
        self._consumer.on_task_request(request)


def arguments_in(message: Any) -> Arguments | None:
    """The arguments of an ordinary message. None: leave the message to Celery."""
    headers = message.headers
    is_ordinary = (
        envelope.LANE in headers
        and message.content_type == envelope.JSON
        and message.content_encoding == "utf-8"
        and (message.accept is None or envelope.JSON in message.accept)
        and isinstance(message.body, bytes)
        and headers.get("eta") is None
        and headers.get("expires") is None
        and not headers.get("stamped_headers")
    )
    return arguments_of(message.body) if is_ordinary else None


def _log(request: Any) -> None:
    context = {
        "id": request.id,
        "name": request.name,
        "args": request.argsrepr,
        "kwargs": request.kwargsrepr,
        "eta": None,
    }
    logger.info(trace.LOG_RECEIVED, context, extra={"data": context})


def _send_event(dispatcher: Any, request: Any) -> None:
    dispatcher.send(
        "task-received",
        uuid=request.id,
        name=request.name,
        args=request.argsrepr,
        kwargs=request.kwargsrepr,
        root_id=request.root_id,
        parent_id=request.parent_id,
        retries=request.request_dict.get("retries", 0),
        eta=None,
        expires=None,
    )


#: The result of a message that was released before it started.
_NOT_RUN = None


class FastRequest(LaneRequest):
    """A request without an expiry, an eta or stamps. `of` makes a subclass with the attributes that all messages of a
    task share.
    """

    _eta = _expires = None
    _utc, _decoded = True, True
    acknowledged: bool = False
    _content_type: ClassVar[str | None] = None
    _content_encoding: ClassVar[str | None] = None

    @classmethod
    def of(cls, task: Any, consumer: Any) -> type[FastRequest]:
        shared = {
            "_app": task.app,
            "_in_flight": task.app.lanes.in_flight,
            "_forks": task.app.lanes.in_flight.forks,
            "_task": task,
            "_type": task.name,
            "name": task.name,
            "_hostname": consumer.hostname,
            "_eventer": consumer.event_dispatcher,
            "_connection_errors": consumer.connection_errors,
            "_call_soon_ack": staticmethod(consumer.call_soon_ack),
            "_utc": task.app.uses_utc_timezone(),
        }
        return type(cls.__name__, (cls,), shared)

    def __init__(self, message: Any, arguments: Arguments) -> None:
        # Does not call Celery's constructor, which checks for every optional part of a message.
        headers, properties = message.headers, message.properties
        self._message = message
        self.id = headers["id"]
        self._root_id, self._parent_id = headers.get("root_id"), headers.get("parent_id")
        self._argsrepr, self._kwargsrepr = headers.get("argsrepr", ""), headers.get("kwargsrepr", "")
        if shadow := headers.get("shadow"):
            self.name = shadow
        if limits := headers.get("timelimit"):
            self.time_limits = limits
        ignored = headers.get("ignore_result")
        self._ignore_result = self._task.ignore_result if ignored is None else ignored
        info = message.delivery_info
        self._delivery_info = {
            "exchange": info.get("exchange"),
            "routing_key": info.get("routing_key"),
            "priority": properties.get("priority"),
            "redelivered": info.get("redelivered", False),
        }
        self._body = arguments
        self._request_dict = {
            **headers,
            "properties": properties,
            "reply_to": properties.get("reply_to"),
            "correlation_id": properties.get("correlation_id"),
            "hostname": self._hostname,
            "delivery_info": self._delivery_info,
            "args": arguments[0],
            "kwargs": arguments[1],
        }

    @property
    def _on_ack(self) -> Any:
        return partial(self._call_soon_ack, self._message.ack_log_error)

    @property
    def _on_reject(self) -> Any:
        return partial(self._call_soon_ack, self._message.reject_log_error)

    @property
    def _payload(self) -> Any:
        """The payload as received: a run may change its arguments."""
        return self._message.payload

    @property
    def _args(self) -> Any:
        return self._payload[0]

    @property
    def _kwargs(self) -> Any:
        return self._payload[1]

    def revoked(self) -> bool:
        if self._already_revoked or self.id in state.revoked:
            return super().revoked()
        return self._forks and self._is_released()  # without forks, `_run_here` checks this at the start

    def execute_using_pool(self, pool: Any, **_: Any) -> Any:
        if self.revoked():
            raise TaskRevokedError(self.id)
        limit_s, soft_limit_s = self.time_limits
        result = pool.apply_async(
            run if self._forks else self._run_here,
            args=self._child_arguments() if self._forks else (pool,),
            accept_callback=self.on_accepted if self._forks else None,
            timeout_callback=self.on_timeout,
            callback=self.on_success,
            error_callback=self.on_failure,
            soft_timeout=soft_limit_s or self._task.soft_time_limit,
            timeout=limit_s or self._task.time_limit,
            correlation_id=self.id,
            **self._loop(pool),
        )
        self._apply_result = None if result is None else ref(result)
        return result

    def _loop(self, pool: Any) -> dict[str, Any]:
        """The event loop on which this may run without its own thread, if the pool has loops (thread_pool.py)."""
        if not getattr(pool, "has_loops", False):
            return {}
        tracer = self._task.__trace__.tracer
        if not isinstance(tracer, Tracer) or not tracer.is_alone(self._body[2]):
            return {}
        return {"loop": self._task.loop_of(self.id)}

    def _child_arguments(self) -> tuple[Any, ...]:
        """The arguments of `run` in a child. Sending the encoded body is faster than pickling the decoded arguments."""
        message = self._message
        request = {name: value for name, value in self._request_dict.items() if name not in ("args", "kwargs")}
        return self._type, self.id, request, message.body, message.content_type, message.content_encoding

    def _run_here(self, pool: Any) -> Any:
        """Run in a thread or greenlet of the pool, which may be long after the request was passed to the pool."""
        if not self._in_flight.holds(self._message.delivery_tag) and self._is_released():
            return _NOT_RUN
        self.on_accepted(pool.getpid() if hasattr(pool, "getpid") else os.getpid(), monotonic())
        return run(self._type, self.id, self._request_dict, self._body, None, None)

    def send_event(self, type: str, **fields: Any) -> None:  # noqa: A002 - Celery's word
        if self._eventer and self._eventer.sends_task_events and self._task.send_events:
            self._eventer.send(type, uuid=self.id, **self.event_fields(type), **fields)

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        self.worker_pid = pid
        self.time_start = time() - (monotonic() - time_accepted)
        # As state.task_accepted, which uses a slow method of Counter.
        state.requests[self.id] = self
        state.active_requests.add(self)
        state.total_count[self.name] += 1
        state.all_total_count[0] += 1
        self.send_event("task-started")
        if celerys._does_debug:
            celerys.debug("Task accepted: %s[%s] pid:%r", self.name, self.id, pid)
        if self._terminate_on_ack is not None:
            self.terminate(*self._terminate_on_ack)

    def on_success(self, failed__retval__runtime: Any, **_: Any) -> None:
        if failed__retval__runtime is _NOT_RUN:
            return
        failed, retval, runtime = failed__retval__runtime
        if failed:
            super().on_success(failed__retval__runtime)
            return
        state.task_ready(self)
        self.acknowledge()
        self.send_event("task-succeeded", result=retval, runtime=runtime)

    def acknowledge(self) -> None:
        """Settle the message. Callable from any thread: the ack is sent to Redis later."""
        if not self.acknowledged:
            self._in_flight.done(self._message.delivery_tag)
            self._message._state = "ACK"
            self.acknowledged = True


def run(
    name: str,
    uuid: str,
    request: dict[str, Any],
    body: Any,
    content_type: str | None,
    content_encoding: str | None,
    **options: Any,
) -> Any:
    """Like Celery's fast_trace_task, with a faster decoder."""
    decoded = body
    if content_type:
        decoded = arguments_of(body) if content_type == envelope.JSON and isinstance(body, bytes) else None
    if decoded is None:
        trace_task = trace.fast_trace_task if trace._localized else trace.trace_task_ret
        return trace_task(name, uuid, request, body, content_type, content_encoding, **options)
    args, kwargs, embed = decoded
    # Empty in an embedded worker (celery.contrib.testing), where Celery takes the current app.
    tasks, _, hostname = trace._localized or (current_app.tasks, None, gethostname())
    request.update(embed, args=args, kwargs=kwargs, hostname=hostname, is_eager=False)
    retval, info, runtime_s, shown = tasks[name].__trace__(uuid, args, kwargs, request)
    return (1, retval, runtime_s) if info else (0, shown, runtime_s)


#: (args, kwargs, embed) of Celery's protocol 2, with a list as args because JSON has no tuples.
Arguments = tuple[list[Any], dict[str, Any], dict[str, Any]]

#: kombu's mark of a type that JSON does not have, and how a character of the mark begins if it is escaped.
_MARK = b"__type__"
_ESCAPE, _ESCAPED = b"\\u00", (b"\\u005", b"\\u006", b"\\u007")

#: orjson decodes an integer of more than 64 bits as a float. Such an integer has at least this many digits.
_LONG = b"0" * 19
_DIGITS = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))


def arguments_of(body: bytes) -> Arguments | None:
    """The decoded body: the same value as that of kombu's JSON decoder. None where only that decoder can decide: a type
    that JSON does not have (a date, bytes, a Decimal), an integer of more than 64 bits, a string that is not valid
    Unicode, and invalid JSON.
    """
    if _MARK in body or _LONG in body.translate(_DIGITS):
        return None
    if _ESCAPE in body and any(each in body for each in _ESCAPED):
        return None
    try:
        payload = loads(body)
    except ValueError:
        return None
    if type(payload) is not list or len(payload) != 3:
        return None
    args, kwargs, embed = payload
    if type(args) is not list or type(kwargs) is not dict or type(embed) is not dict:
        return None
    return args, kwargs, embed
