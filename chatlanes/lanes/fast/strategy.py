"""What a worker does with a message of a lane queue, from the consumer to its pool.

Promises what Celery's own strategy does (the log line, the signal, the event, revoked ones, the worker's state), and
leaves to it whatever is not an ordinary message of our own: another protocol, content or encoding, an eta, an expiry,
stamps, an app with its own request class. Decodes the body once, where Celery does twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery import bootsteps, signals
from celery.app import trace
from celery.worker import state
from celery.worker.strategy import default, logger
from kombu.exceptions import DecodeError
from kombu.serialization import registry
from kombu.utils import json as kombu_json

from chatlanes.lanes.fast.json_decoder import Arguments, arguments_of
from chatlanes.lanes.fast.request import PlainRequest
from chatlanes.lanes.protocol import envelope
from chatlanes.lanes.worker.task import LaneTask

Receive = Callable[..., Any]


class ReceivePlain(bootsteps.StartStopStep):
    """Of the consumer: what is plain is received without the promises that Celery makes for each message."""

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        celerys = consumer.create_task_handler
        consumer.create_task_handler = lambda: _handler(consumer, celerys())
        super().__init__(consumer, **kwargs)


def _handler(consumer: Any, celerys: Receive) -> Receive:
    def on_task_received(message: Any) -> Any:
        strategy = consumer.strategies.get(message.headers.get("task"))
        if isinstance(strategy, Plain) and (arguments := _arguments(message)) is not None:
            return strategy.receive(message, arguments, consumer.on_task_message)
        if envelope.LANE in message.headers and not _can_be_run(message):
            return consumer.on_decode_error(message, DecodeError("it is no [args, kwargs, embed]"))
        return celerys(message)

    return on_task_received


def strategy(task: LaneTask, app: Any, consumer: Any, **options: Any) -> Receive:
    """`task.Strategy`: called for each connection of a worker."""
    celerys: Receive = default(task, app, consumer, **options)
    return Plain(task, consumer, celerys) if _is_usual(task, app) else celerys


def _is_usual(task: LaneTask, app: Any) -> bool:
    return (
        task.Request == LaneTask.Request
        and registry._decoders.get(envelope.JSON) is kombu_json.loads
        # Celery follows what is acknowledged to find its way back to the old prefetch count.
        and not app.conf.worker_enable_prefetch_count_reduction
    )


class Plain:
    """For the messages of one task. What is not plain is Celery's."""

    def __init__(self, task: LaneTask, consumer: Any, celerys: Receive) -> None:
        self._task, self._consumer, self._celerys = task, consumer, celerys
        self._make = PlainRequest.of(task, consumer)
        self._dispatcher = consumer.event_dispatcher
        self._says = logger.isEnabledFor(logging.INFO)

    def __call__(self, message: Any, body: Any, ack: Any, reject: Any, callbacks: Any) -> Any:
        """As Celery calls a strategy."""
        arguments = _arguments(message) if body is None else None
        if arguments is None:
            return self._celerys(message, body, ack, reject, callbacks)
        return self.receive(message, arguments, callbacks)

    def receive(self, message: Any, arguments: Arguments, callbacks: Any) -> None:
        request = self._make(message, arguments)
        if self._says:
            _say(request)
        if request.id in state.revoked and request.revoked():
            return
        if signals.task_received.receivers:
            signals.task_received.send(sender=self._consumer, request=request)
        if self._dispatcher and self._dispatcher.tells_tasks and self._task.send_events:
            _send_event(self._dispatcher, request)
        state.task_reserved(request)
        for callback in callbacks or ():
            callback(request)
        self._consumer.on_task_request(request)


def _arguments(message: Any) -> Arguments | None:
    """None: Celery is to look at it."""
    headers = message.headers
    is_plain = (
        envelope.LANE in headers
        and message.content_type == envelope.JSON
        and message.content_encoding == "utf-8"
        and (message.accept is None or envelope.JSON in message.accept)
        and isinstance(message.body, bytes)
        and headers.get("eta") is None
        and headers.get("expires") is None
        and not headers.get("stamped_headers")
    )
    return arguments_of(message.body) if is_plain else None


def _can_be_run(message: Any) -> bool:
    """Celery would fall over it in front of the run, which then never begins: it would be handed out for ever."""
    try:
        payload = message.payload
    except Exception:  # which Celery notices as soon as it comes
        return True
    if not isinstance(payload, list | tuple):
        return True  # of another protocol, or nothing that Celery takes
    return len(payload) == 3 and (not payload[2] or isinstance(payload[2], dict))


def _say(request: Any) -> None:
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
