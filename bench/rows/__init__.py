"""The rows of the table, one module each: `run(stage)` measures a row and returns its results."""

from collections.abc import Callable

from bench.figures import Result
from bench.rows import (
    bots,
    calls,
    costs,
    dedup,
    frameworks,
    growth,
    hot_lane,
    idle,
    intake,
    latency,
    memory,
    peers,
    pieces,
    rates,
    recipe,
    recovery,
    scaling,
    sessions,
    slow_chat,
    throughput,
    webhook,
    worker_memory,
)
from bench.stage import Stage

ROWS: dict[str, Callable[[Stage], list[Result]]] = {
    "throughput": throughput.run,
    "pieces": pieces.run,
    "peers": peers.run,
    "recipe": recipe.run,
    "slow-chat": slow_chat.run,
    "waits": bots.waits,
    "computes": bots.computes,
    "intake": intake.run,
    "webhook": webhook.run,
    "latency": latency.run,
    "calls": calls.run,
    "frameworks": frameworks.run,
    "hot-lane": hot_lane.run,
    "memory": memory.run,
    "dedup": dedup.run,
    "rates": rates.run,
    "sessions": sessions.run,
    "costs": costs.run,
    "idle": idle.run,
    "worker-memory": worker_memory.run,
    "growth": growth.run,
    "recovery": recovery.run,
    "scaling": scaling.run,
}

#: Rows that take less than ten minutes together; the others run with --all or by name.
CORE = ("throughput", "peers", "recipe", "intake", "latency", "hot-lane", "memory")
