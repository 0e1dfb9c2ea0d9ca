"""Publishes the plan; `publish` of JetStream returns when the server has the message on disk."""

import asyncio
import json

import nats
import referee


async def main() -> None:
    client = await nats.connect(referee.URL)
    jetstream = client.jetstream()

    async def publish(key: str, number: int, work_ms: int, fails: int) -> None:
        message = {"key": key, "number": number, "work_ms": work_ms, "fails": fails}
        await jetstream.publish(f"message.{key}", json.dumps(message).encode())

    await referee.produce_async(publish)
    await client.close()


asyncio.run(main())
