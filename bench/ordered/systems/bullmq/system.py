"""BullMQ on Redis: keys hashed to queues, each with a global concurrency of one. Groups are in its paid edition."""

from bench.ordered.servers import Redis
from bench.ordered.system import System

SYSTEM = System(
    title="BullMQ, hashed queues",
    claims="in order and one at a time for each queue, with a global concurrency of 1; groups only in BullMQ Pro",
    pages=(
        "https://docs.bullmq.io/guide/queues/global-concurrency",
        "https://docs.bullmq.io/guide/jobs/stalled",
        "https://docs.bullmq.io/patterns/manual-retrying",
        "https://docs.bullmq.io/bullmq-pro/groups",
    ),
    server=Redis,
    node=("bullmq@6.7.0", "ioredis@5.9.2"),
    worker=("node", "{home}/worker.cjs"),
    producer=("node", "{home}/produce.cjs"),
    avoid="none: a worker that was frozen runs what it had, though another ran it meanwhile",
)
