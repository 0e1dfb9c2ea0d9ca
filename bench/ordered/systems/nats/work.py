"""A worker pulls from every partition, and from all again after a reconnect. It tells the server while a message waits
for a slot and runs (`in_progress`), delays one that failed, and gives up after three attempts (`term`).
"""

import asyncio
import json

import nats
import referee
from nats.aio.msg import Msg
from nats.errors import Error
from nats.js import JetStreamContext
from stream import PARTITIONS

slots = asyncio.Semaphore(referee.SLOTS)


async def main() -> None:
    client = await nats.connect(referee.URL, max_reconnect_attempts=-1, reconnect_time_wait=0.2)
    await asyncio.gather(*(consume(client.jetstream(), number) for number in range(PARTITIONS)))


async def consume(jetstream: JetStreamContext, number: int) -> None:
    subscription = await jetstream.pull_subscribe_bind(f"partition-{number}", stream="referee")
    while True:
        try:
            for message in await subscription.fetch(1, timeout=5):
                await run(message)
        except Error:
            await asyncio.sleep(0.05)


async def run(message: Msg) -> None:
    beat = asyncio.create_task(keep_alive(message))
    try:
        async with slots:
            await referee.handle_async(**json.loads(message.data))
    except referee.PlannedFailureError:
        is_last = message.metadata.num_delivered >= referee.ATTEMPTS
        await (message.term() if is_last else message.nak(delay=referee.RETRY_AFTER_S))
    else:
        await message.ack_sync()
    finally:
        beat.cancel()


async def keep_alive(message: Msg) -> None:
    while True:
        await asyncio.sleep(referee.LEASE_S / 3)
        await message.in_progress()


asyncio.run(main())
