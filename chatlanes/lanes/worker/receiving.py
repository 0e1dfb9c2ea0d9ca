"""Messages of lanes in Celery's consumer. Those of ordinary queues are received as in Celery.

Guarantees that a message of a lane is acknowledged when it has ended, and returned when its process has died, whatever
the settings and the attributes of its task say; that no rate limit applies to it; and that one that Celery cannot run
is buried: a body that cannot be decoded, or is not [args, kwargs, embed]. Celery would acknowledge the former, which
drops it, and raise an error for the latter before it runs, so that it would be handed out again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Task, bootsteps
from celery.local import Proxy
from celery.utils.imports import instantiate
from celery.utils.log import get_task_logger
from celery.worker import state
from kombu.exceptions import DecodeError

from chatlanes.lanes.protocol import envelope

logger = get_task_logger(__name__)


class LeasedTask(Proxy):
    """A task as Celery sees it for a message of a lane."""

    __slots__ = ()
    #: The message is settled when the task has ended, and released when its process has died.
    acks_late = reject_on_worker_lost = True
    #: A hard time limit kills the process: this counts as a death, not as the end of the run.
    acks_on_timeout = False

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
