"""The Celery side: the task, its request and deliveries, the journal of a run, and worker shutdown."""

from celery_lanes.worker.shutdown import check_is_exception, ends_the_worker, is_stopping
