"""Publishes the plan; `enqueue` returns when PostgreSQL has committed the workflow.

Of workflows that were created in the same millisecond, DBOS starts the one with the lower id first.
"""

import referee
from app import QUEUE, WORKFLOW, config
from dbos import DBOSClient

client = DBOSClient(system_database_url=config["system_database_url"])


def publish(key: str, number: int, work_ms: int, fails: int) -> None:
    options = {
        "queue_name": QUEUE,
        "workflow_name": WORKFLOW,
        "queue_partition_key": key,
        "workflow_id": f"{key}-{number:09}",
    }
    client.enqueue(options, key, number, work_ms, fails)


referee.produce(lambda: publish)
