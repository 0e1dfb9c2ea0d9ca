"""A lock for each key (https://procrastinate.readthedocs.io/en/stable/howto/advanced/locks.html), and the periodic task
that retries the jobs of dead workers
(https://procrastinate.readthedocs.io/en/stable/howto/production/retry_stalled_jobs.html).

A worker looks for the next job of a lock at its polling interval, by default every five seconds; here 20 ms.
"""

import referee
from procrastinate import App, JobContext, PsycopgConnector, RetryStrategy

app = App(
    connector=PsycopgConnector(conninfo=referee.URL, max_size=20),
    worker_defaults={
        "update_heartbeat_interval": referee.LEASE_S / 3,
        "stalled_worker_timeout": referee.LEASE_S,
        "fetch_job_polling_interval": 0.02,
        "delete_jobs": "successful",
    },
)


@app.task(queue="referee", retry=RetryStrategy(max_attempts=referee.ATTEMPTS - 1))
async def handle(key: str, number: int, work_ms: int, fails: int) -> None:
    await referee.handle_async(key, number, work_ms, fails)


@app.periodic(cron="* * * * * */2")
@app.task(queueing_lock="retry_stalled_jobs", pass_context=True)
async def retry_stalled_jobs(context: JobContext, timestamp: int) -> None:
    for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=referee.LEASE_S):
        await app.job_manager.retry_job(job)
