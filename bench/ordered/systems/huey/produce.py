"""Publishes the plan; a call returns when Redis has the task on disk."""

import referee
from app import handle

referee.produce(lambda: handle)
