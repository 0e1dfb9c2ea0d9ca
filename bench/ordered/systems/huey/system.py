"""huey on Redis: keys hashed to queues, each consumed by one thread."""

from bench.ordered.servers import Redis
from bench.ordered.system import SLOTS, System

SYSTEM = System(
    title="huey, hashed queues",
    claims="no order; one thread for a queue keeps it until something fails",
    pages=(
        "https://huey.readthedocs.io/en/latest/guide.html#multiple-huey-instances",
        "https://huey.readthedocs.io/en/latest/consumer.html",
    ),
    server=Redis,
    python=("huey==3.5.4", "redis==8.1.0", "hiredis==3.5.0"),
    worker=("{bin}/huey_consumer", "app.own", "-k", "thread", "-w", "1", "--no-periodic", "--quiet"),
    producer=("{bin}/python", "{home}/produce.py"),
    processes=SLOTS,
    avoid="none: a consumer removes a task from Redis before it runs, so a killed one loses what it runs",
)
