"""A stream that is a work queue, and a consumer for each partition: `max_ack_pending` 1 lets one message run at a time,
and one that is not acknowledged within `ack_wait` is delivered again before the next
(https://docs.nats.io/nats-concepts/jetstream/consumers).
"""

import asyncio

import nats
import referee
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StreamConfig

PARTITIONS = 32


async def main() -> None:
    client = await nats.connect(referee.URL)
    jetstream = client.jetstream()
    await jetstream.add_stream(
        StreamConfig(name="referee", subjects=["partition.*.*"], retention=RetentionPolicy.WORK_QUEUE)
    )
    for number in range(PARTITIONS):
        consumer = ConsumerConfig(
            durable_name=f"partition-{number}",
            filter_subject=f"partition.{number}.*",
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=referee.LEASE_S,
            max_ack_pending=1,
        )
        await jetstream.add_consumer("referee", consumer)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
