"""taskiq on Redis streams: keys hashed to streams, each consumed by one process with one slot."""

from bench.ordered.servers import Redis
from bench.ordered.system import SLOTS, System

SYSTEM = System(
    title="taskiq, hashed streams",
    claims="no order; one slot for a stream keeps it until something fails",
    pages=(
        "https://taskiq-python.github.io/available-components/brokers.html",
        "https://taskiq-python.github.io/guide/cli.html",
        "https://github.com/taskiq-python/taskiq-redis",
    ),
    server=Redis,
    python=("taskiq==0.13.0", "taskiq-redis==1.2.4", "redis==8.1.0", "hiredis==3.5.0"),
    worker=(
        *("{bin}/taskiq", "worker", "app:broker", "--workers", "1", "--max-async-tasks", "1", "--max-prefetch", "1"),
        *("--ack-type", "when_executed", "--log-level", "WARNING"),
    ),
    producer=("{bin}/python", "{home}/produce.py"),
    processes=SLOTS,
    avoid="none: a message that is claimed after `idle_timeout` runs behind later ones, and only when another arrives",
)
