"""Publishes the plan; `send` returns when Redis has the message on disk."""

import referee
from app import handle

referee.produce(lambda: handle.send)
