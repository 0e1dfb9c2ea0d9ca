"""Clock, OS threads, alarms, blocking steps and retries. Does not import asyncio, greenlet or Celery."""

from chatlanes.lanes.runtime import blocking, clock, os_threads, process
from chatlanes.lanes.runtime.outcome import Returned
from chatlanes.lanes.runtime.retry import Retries
from chatlanes.lanes.runtime.timers import Alarms

__all__ = ["Alarms", "Retries", "Returned", "blocking", "clock", "os_threads", "process"]
