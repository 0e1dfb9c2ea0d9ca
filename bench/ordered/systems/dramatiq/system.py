"""dramatiq on Redis: keys hashed to queues, each consumed by one process with one thread."""

from bench.ordered.servers import Redis
from bench.ordered.system import SLOTS, System

SYSTEM = System(
    title="dramatiq, hashed queues",
    claims="no order; one slot for a queue keeps it until something fails",
    pages=(
        "https://github.com/Bogdanp/dramatiq/issues/385",
        "https://dramatiq.io/reference.html#dramatiq.brokers.redis.RedisBroker",
        "https://dramatiq.io/guide.html#message-retries",
    ),
    server=Redis,
    python=("dramatiq==2.2.1", "redis==8.1.0", "hiredis==3.5.0"),
    worker=("{bin}/dramatiq", "app", "-p", "1", "-t", "1", "-Q", "lane_{worker}_{part}"),
    producer=("{bin}/python", "{home}/produce.py"),
    processes=SLOTS,
    environment={"dramatiq_queue_prefetch": "1"},
    avoid="none: a retry, and what a dead worker had, join the queue again behind later messages",
)
