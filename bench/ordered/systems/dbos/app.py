"""A partitioned queue that runs one workflow of a partition at a time
(https://docs.dbos.dev/python/tutorials/queue-tutorial#partitioning-queues).

Each worker has an `executor_id` of its own and gets it again after a crash, so that it recovers its workflows when it
starts (https://docs.dbos.dev/production/workflow-recovery). With the default of one poll a second, a key would have one
message a second; here it is 10 ms.
"""

import os

import referee
from dbos import DBOS, DBOSConfig

QUEUE, WORKFLOW = "referee", "handle"
config: DBOSConfig = {
    "name": "referee",
    "system_database_url": referee.URL.replace("postgresql://", "postgresql+psycopg://"),
    "executor_id": os.environ["REFEREE_WORKER"],
    "application_version": "1",
    "log_level": "WARNING",
}
DBOS(config=config)


@DBOS.step(retries_allowed=True, max_attempts=referee.ATTEMPTS, interval_seconds=referee.RETRY_AFTER_S, backoff_rate=1)
def run(key: str, number: int, work_ms: int, fails: int) -> None:
    referee.handle(key, number, work_ms, fails)


@DBOS.workflow(name=WORKFLOW)
def handle(key: str, number: int, work_ms: int, fails: int) -> None:
    run(key, number, work_ms, fails)


def launch() -> None:
    DBOS.launch()
    DBOS.register_queue(QUEUE, partition_concurrency=1, worker_concurrency=referee.SLOTS, polling_interval_sec=0.01)
