"""The rows of the table, one module each: `run(harness)` measures a row and returns its results."""

from collections.abc import Callable

from bench.measure.figures import Result
from bench.measure.harness import Harness
from bench.rows.bots import calls, frameworks, rates, sessions, whole_bots
from bench.rows.delivery import broadcast, conversations, intake, latency, recovery, stops, webhook
from bench.rows.resources import (
    added_bots,
    costs,
    countdown,
    dedup,
    growth,
    idle,
    memory,
    script_times,
    timers,
    worker_memory,
)
from bench.rows.throughput import hot_lane, no_op, peers, pieces, recipe, scaling, slow_chat

ROWS: dict[str, Callable[[Harness], list[Result]]] = {
    "throughput": no_op.run,
    "pieces": pieces.run,
    "peers": peers.run,
    "recipe": recipe.run,
    "slow-chat": slow_chat.run,
    "waits": whole_bots.waits,
    "computes": whole_bots.computes,
    "intake": intake.run,
    "webhook": webhook.run,
    "latency": latency.run,
    "calls": calls.run,
    "frameworks": frameworks.run,
    "hot-lane": hot_lane.run,
    "memory": memory.run,
    "timers": timers.run,
    "countdown": countdown.run,
    "dedup": dedup.run,
    "rates": rates.run,
    "sessions": sessions.run,
    "costs": costs.run,
    "idle": idle.run,
    "added-bots": added_bots.run,
    "worker-memory": worker_memory.run,
    "script-times": script_times.run,
    "growth": growth.run,
    "recovery": recovery.run,
    "conversations": conversations.run,
    "stops": stops.run,
    "broadcast": broadcast.run,
    "scaling": scaling.run,
}

#: Rows that take less than ten minutes together; the others run with --all or by name.
CORE = ("throughput", "peers", "recipe", "intake", "latency", "hot-lane", "memory")
