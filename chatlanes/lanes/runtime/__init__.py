"""Clock, OS threads, alarms, blocking steps and retries. Does not import asyncio, greenlet or Celery."""

from chatlanes.lanes.runtime import blocking, clock, os_threads, process
from chatlanes.lanes.runtime.alarms import Alarms
from chatlanes.lanes.runtime.outcome import Returned
from chatlanes.lanes.runtime.retry import Retries

__all__ = ["Alarms", "Retries", "Returned", "blocking", "clock", "os_threads", "process"]
