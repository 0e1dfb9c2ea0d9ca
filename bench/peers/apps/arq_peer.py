"""The no-op task in arq. Runs in its own environment; `fill` sends the updates that feeding.py reads."""

import asyncio
import os
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from feeding import updates

REDIS = RedisSettings.from_dsn(os.environ["BENCH_REDIS"])


async def noop(ctx: dict[str, Any], update: dict[str, Any]) -> None:
    """Measures only the cost of delivery."""


class WorkerSettings:
    functions = (noop,)
    redis_settings = REDIS
    keep_result = 0
    max_jobs = int(os.environ.get("BENCH_JOBS", "10"))
    poll_delay = float(os.environ.get("BENCH_POLL_S", "0.5"))


async def _fill() -> None:
    pool = await create_pool(REDIS)
    for update in updates():
        await pool.enqueue_job("noop", update)
    await pool.aclose()


def fill() -> None:
    asyncio.run(_fill())
