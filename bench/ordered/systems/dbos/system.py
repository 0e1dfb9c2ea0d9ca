"""DBOS on PostgreSQL: a queue with a partition for each key."""

from bench.ordered.servers import PostgreSQL
from bench.ordered.system import System

SYSTEM = System(
    title="DBOS, partitioned queue",
    claims="in order, one at a time for each partition; a workflow continues after a crash",
    pages=(
        "https://docs.dbos.dev/python/tutorials/queue-tutorial#partitioning-queues",
        "https://docs.dbos.dev/production/workflow-recovery",
    ),
    server=PostgreSQL,
    python=("dbos==3.4.0", "psycopg[binary]==3.3.9"),
    setup=("{bin}/python", "{home}/setup.py"),
    worker=("{bin}/python", "{home}/work.py"),
    producer=("{bin}/python", "{home}/produce.py"),
    avoid="what a frozen or lost machine ran waits for it: DBOS Conductor, a service of its own, detects that",
)
