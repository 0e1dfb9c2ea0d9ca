"""Publishes the plan; `kiq` returns when Redis has the message on disk."""

import asyncio

import referee
from app import broker, handle, stream_of


async def publish(key: str, number: int, work_ms: int, fails: int) -> None:
    kicker = handle.kicker().with_labels(queue_name=stream_of(key))
    await kicker.kiq(key, number, work_ms, fails)


async def main() -> None:
    await broker.startup()
    await referee.produce_async(publish)
    await broker.shutdown()


asyncio.run(main())
