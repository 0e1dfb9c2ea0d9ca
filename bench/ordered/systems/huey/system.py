"""huey on Redis: one lock for each key."""

from bench.ordered.servers import Redis
from bench.ordered.system import System

SYSTEM = System(
    title="huey, lock_task",
    claims="one at a time while the lock lives; no order: a task that finds the lock taken is tried again later",
    pages=(
        "https://huey.readthedocs.io/en/latest/guide.html#locking-tasks",
        "https://huey.readthedocs.io/en/latest/consumer.html",
    ),
    server=Redis,
    python=("huey==3.5.4", "redis==8.1.0", "hiredis==3.5.0"),
    worker=("{bin}/huey_consumer", "app.huey", "-k", "thread", "-w", "16", "--no-periodic", "--quiet"),
    producer=("{bin}/python", "{home}/produce.py"),
    avoid="none: a consumer removes a task from Redis before it runs, so a killed one loses what it runs; "
    "one consumer with one thread keeps the order, for all keys together",
)
