"""Publishes the plan; `defer_async` returns when PostgreSQL has committed the job.

Then the statistics of the planner, as after any bulk load (https://www.postgresql.org/docs/current/populate.html).
"""

import asyncio

import referee
from app import app, handle


async def publish(key: str, number: int, work_ms: int, fails: int) -> None:
    await handle.configure(lock=key).defer_async(key=key, number=number, work_ms=work_ms, fails=fails)


async def main() -> None:
    async with app.open_async():
        await referee.produce_async(publish)
        await app.connector.execute_query_async("ANALYZE procrastinate_jobs")


asyncio.run(main())
