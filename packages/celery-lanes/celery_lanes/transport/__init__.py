"""The kombu transport: publish is append, consume is fetch, acknowledge is settle."""

from celery_lanes.transport.fetch import FetchLoop
from celery_lanes.transport.publish import headers
from celery_lanes.transport.transport import (
    FIRST_QUEUE_ARGUMENTS,
    LANES_ARGUMENT,
    LAST_QUEUE_ARGUMENTS,
    QUEUE_ARGUMENTS,
    LanesSentinelTransport,
    LanesTransport,
)

__all__ = [
    "FIRST_QUEUE_ARGUMENTS",
    "LANES_ARGUMENT",
    "LAST_QUEUE_ARGUMENTS",
    "QUEUE_ARGUMENTS",
    "FetchLoop",
    "LanesSentinelTransport",
    "LanesTransport",
    "headers",
]
