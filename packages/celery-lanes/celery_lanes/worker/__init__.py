"""The Celery side: the task, its request and deliveries, the journal of a run, and worker shutdown."""

from celery_lanes.worker.delivery import Delivery, delivery_of
from celery_lanes.worker.journal import AppLanes, Journal
from celery_lanes.worker.shutdown import check_is_exception, ends_the_worker, is_stopping
from celery_lanes.worker.task import LaneTask, Loop

__all__ = [
    "AppLanes",
    "Delivery",
    "Journal",
    "LaneTask",
    "Loop",
    "check_is_exception",
    "delivery_of",
    "ends_the_worker",
    "is_stopping",
]
