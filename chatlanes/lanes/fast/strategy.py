"""Replaces Celery's message handler and strategy for ordinary messages of lane queues.

Does what Celery's strategy does (log line, signal, event, revoked messages, the worker's state), but decodes the body
once instead of twice. Celery still handles messages of another protocol, content type or encoding, messages with an
eta, an expiry or stamps, and tasks with their own strategy or request class.
"""

from __future__ import annotations

import logging
from typing import Any

from celery import Task, bootsteps, signals
from celery.app import trace
from celery.worker import state
from celery.worker.strategy import logger
from kombu.serialization import registry
from kombu.utils import json as kombu_json

from chatlanes.lanes.fast.json_decoder import Arguments, arguments_of
from chatlanes.lanes.fast.request import FastRequest
from chatlanes.lanes.protocol import envelope
from chatlanes.lanes.worker.receiving import LeasedTask, ReceiveLeased
from chatlanes.lanes.worker.task import LaneTask


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
