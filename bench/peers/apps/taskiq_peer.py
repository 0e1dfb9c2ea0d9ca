"""The no-op task in taskiq. Runs in its own environment; `fill` sends the updates that feeding.py reads.

With BENCH_STREAM it uses the broker that acknowledges (a stream), otherwise the one that does not (a list).
"""

import asyncio
import os
from typing import Any

from feeding import updates
from taskiq.serializers import ORJSONSerializer
from taskiq_redis import ListQueueBroker, RedisStreamBroker

Broker = RedisStreamBroker if os.environ.get("BENCH_STREAM") else ListQueueBroker
broker = Broker(os.environ["BENCH_REDIS"], queue_name="noop").with_serializer(ORJSONSerializer())


@broker.task(task_name="noop")
async def noop(update: dict[str, Any]) -> None:
    """Measures only the cost of delivery."""


async def _fill() -> None:
    await broker.startup()
    for update in updates():
        await noop.kiq(update)
    await broker.shutdown()


def fill() -> None:
    asyncio.run(_fill())
