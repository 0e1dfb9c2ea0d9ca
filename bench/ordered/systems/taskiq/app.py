"""RedisStreamBroker, which acknowledges (https://github.com/taskiq-python/taskiq-redis); a stream for each
process, which fetches ten messages at a time and runs one.

`idle_timeout` is the time after which a message that nobody acknowledged is claimed; `consumer_id` 0 keeps messages
that are older than the first worker. SimpleRetryMiddleware is taskiq's own.
"""

import os
from zlib import crc32

import referee
from taskiq import SimpleRetryMiddleware
from taskiq_redis import RedisStreamBroker

STREAMS = [f"stream.{machine}.{number}" for machine in range(2) for number in range(referee.SLOTS)]
own = f"stream.{os.environ['REFEREE_WORKER']}.{os.environ['REFEREE_PART']}"
broker = RedisStreamBroker(
    referee.URL,
    queue_name=own,
    consumer_name=own,
    consumer_id="0",
    idle_timeout=referee.LEASE_S * 1000,
    xread_count=10,
    xread_block=1000,
).with_middlewares(SimpleRetryMiddleware(default_retry_count=referee.ATTEMPTS))


@broker.task(retry_on_error=True)
async def handle(key: str, number: int, work_ms: int, fails: int) -> None:
    await referee.handle_async(key, number, work_ms, fails)


def stream_of(key: str) -> str:
    return STREAMS[crc32(key.encode()) % len(STREAMS)]
