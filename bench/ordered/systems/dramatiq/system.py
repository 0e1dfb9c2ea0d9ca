"""dramatiq on Redis: a distributed mutex for each key."""

from bench.ordered.servers import Redis
from bench.ordered.system import System

SYSTEM = System(
    title="dramatiq, mutex",
    claims="one at a time while the mutex lives; no order: a message that finds it taken is tried again later",
    pages=(
        "https://dramatiq.io/reference.html#dramatiq.rate_limits.ConcurrentRateLimiter",
        "https://dramatiq.io/guide.html#message-retries",
    ),
    server=Redis,
    python=("dramatiq==2.2.1", "redis==8.1.0", "hiredis==3.5.0"),
    worker=("{bin}/dramatiq", "app", "-p", "1", "-t", "16"),
    producer=("{bin}/python", "{home}/produce.py"),
    avoid="none for the order of keys; `-p 1 -t 1` on one machine keeps it for all keys together, until a retry. What "
    "a dead worker had returns by chance, at 0.1 % of the fetches of others; a higher `maintenance_chance` hastens it",
)
