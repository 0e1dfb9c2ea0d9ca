"""Stock Celery on Redis: keys hashed to queues, each consumed by one worker with one slot."""

from bench.ordered.servers import Redis
from bench.ordered.system import SLOTS, System

SYSTEM = System(
    title="Celery on Redis, hashed queues",
    claims="no order; one slot for a queue keeps it until something fails",
    pages=(
        "https://docs.celeryq.dev/en/stable/userguide/routing.html",
        "https://docs.celeryq.dev/en/stable/getting-started/backends-and-brokers/redis.html",
    ),
    server=Redis,
    worker=(
        *("{bin}/celery", "-A", "app", "worker", "-l", "WARNING", "--without-mingle", "--without-gossip"),
        *("-P", "solo", "-c", "1", "-Q", "lane.{worker}.{part}", "-n", "w{worker}.{part}@%h"),
    ),
    producer=("{bin}/python", "{home}/produce.py"),
    processes=SLOTS,
    avoid="none: a message between BRPOP and its entry in `unacked` is gone if its process dies, and one that returns "
    "by `visibility_timeout` joins the queue again without regard to the order",
)
