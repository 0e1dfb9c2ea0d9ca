"""Publishes the plan; `send` returns when Redis has the task on disk."""

import referee
from app import send

referee.produce(lambda: send)
