"""Publishes the plan with `delay`, which returns when RabbitMQ has confirmed the message."""

import referee
from app import handle

referee.produce(lambda: handle.delay)
