"""Messages of lanes that Celery's consumer must treat in another way than those of ordinary queues.

Buries those that Celery cannot run: a body that cannot be decoded, or is not [args, kwargs, embed]. Rate limits do not
apply to the others.

Celery would acknowledge a message that cannot be decoded, which drops it. A message with a body of another form would
raise an error in Celery before it runs, and be handed out again and again.
"""

from __future__ import annotations

from typing import Any

from celery import bootsteps
from celery.worker import state
from kombu.exceptions import DecodeError

from chatlanes.lanes.protocol import envelope


class BuryUnrunnable(bootsteps.StartStopStep):
    """The consumer's step."""

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        stock_error, stock_handler = consumer.on_decode_error, consumer.create_task_handler
        stock_limit = consumer._limit_task

        def on_decode_error(message: Any, error: Exception) -> None:
            if "#" in str(message.delivery_tag):
                consumer.app.lanes.in_flight.bury(
                    message.delivery_tag, {"type": type(error).__name__, "message": f"it cannot be decoded: {error}"}
                )
            stock_error(message, error)

        def create_task_handler(*args: Any, **kwargs: Any) -> Any:
            receive = stock_handler(*args, **kwargs)

            def on_task_received(message: Any) -> Any:
                if envelope.LANE in message.headers and not _can_be_run(message):
                    return consumer.on_decode_error(message, DecodeError("it is not [args, kwargs, embed]"))
                return receive(message)

            return on_task_received

        def limit_task(request: Any, bucket: Any, tokens: int) -> None:
            """A rate limit would hold the first message of a lane in this worker, while others are idle."""
            if envelope.LANE in request.request_dict:
                state.task_reserved(request)
                consumer.on_task_request(request)
            else:
                stock_limit(request, bucket, tokens)

        consumer.on_decode_error, consumer.create_task_handler = on_decode_error, create_task_handler
        consumer._limit_task = limit_task
        super().__init__(consumer, **kwargs)


def _can_be_run(message: Any) -> bool:
    try:
        payload = message.payload
    except Exception:  # Celery gets the same error, and calls on_decode_error
        return True
    if not isinstance(payload, list | tuple):
        return True  # another protocol, or a payload that Celery rejects
    return len(payload) == 3 and (not payload[2] or isinstance(payload[2], dict))
