"""Moved to worker/loop_jobs.py."""

from greenlet import getcurrent  # type: ignore[import-untyped]

from chatlanes.lanes.worker.loop_jobs import Loop
from chatlanes.lanes.worker.loop_jobs import LoopJob as Errand
from chatlanes.lanes.worker.loop_jobs import LoopJobs as Errands

__all__ = ["Errand", "Errands", "Loop", "getcurrent"]
