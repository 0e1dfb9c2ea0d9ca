"""Moved to worker/executor.py."""

from chatlanes.lanes.worker.executor import BlockingExecutor as Hands
from chatlanes.lanes.worker.executor import blocking_executor as hands

__all__ = ["Hands", "hands"]
