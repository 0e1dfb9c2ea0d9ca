"""Publishes the plan; `send` returns when Redis has the message on disk."""

import referee
from app import send

referee.produce(lambda: send)
