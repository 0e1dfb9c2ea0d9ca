"""The Celery side: the task, its request and deliveries, the journal of a run, and worker shutdown."""

from chatlanes.lanes.worker.delivery import Delivery, delivery_of
from chatlanes.lanes.worker.executor import blocking_executor
from chatlanes.lanes.worker.exits import check_is_exception, ends_the_worker
from chatlanes.lanes.worker.journal import AppLanes, Journal
from chatlanes.lanes.worker.loop_jobs import Loop, LoopJob, LoopJobs
from chatlanes.lanes.worker.stopping import is_stopping
from chatlanes.lanes.worker.task import LaneTask

__all__ = [
    "AppLanes",
    "Delivery",
    "Journal",
    "LaneTask",
    "Loop",
    "LoopJob",
    "LoopJobs",
    "blocking_executor",
    "check_is_exception",
    "delivery_of",
    "ends_the_worker",
    "is_stopping",
]
