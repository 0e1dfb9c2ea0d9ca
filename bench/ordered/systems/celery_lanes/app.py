"""A Celery app with lanes. `lease_seconds` is celery-lanes' documented setting for how long a worker may be silent."""

import referee
from celery import Celery

import celery_lanes as lanes

app = Celery("referee", broker=referee.URL)
lanes.install(app)
app.conf.update(task_ignore_result=True, broker_transport_options={"lease_seconds": referee.LEASE_S})


@app.task(
    lane="{key}",
    autoretry_for=(referee.PlannedFailureError,),
    max_retries=referee.ATTEMPTS - 1,
    default_retry_delay=referee.RETRY_AFTER_S,
)
def handle(key: str, number: int, work_ms: int, fails: int) -> None:
    referee.handle(key, number, work_ms, fails)
