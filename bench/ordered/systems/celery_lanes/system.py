"""celery-lanes: workers as its README starts them, on one Redis."""

from bench.ordered.servers import Redis
from bench.ordered.system import System

SYSTEM = System(
    title="celery-lanes",
    claims="in order, one at a time, at least once",
    pages=("lanes.md",),
    server=Redis,
    worker=("{bin}/celery", "-A", "app", "worker", "-l", "WARNING", "-P", "threads", "-c", "16", "-n", "w{worker}@%h"),
    producer=("{bin}/python", "{home}/produce.py"),
    avoid="a worker that was frozen for longer than its lease finishes the task that it was in, beside the one that "
    "took over: Redis refuses its writes, but what it changes elsewhere must be idempotent; no setting changes that",
)
