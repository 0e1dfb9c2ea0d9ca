"""Memory: what one waiting update takes in Redis, with everything that the server stores for it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from redis import Redis

from bench.figures import Goal, Result, Side
from bench.rounds import alternate
from bench.scale import CHATS
from bench.sides import BATCH, Stock
from bench.simulator import TOKEN
from bench.stage import Stage, emptied
from bench.updates import make_updates
from chatlanes.settings import load
from chatlanes.updates.intake import Intake

GOAL = Goal("value", "at most", 1_200)


def run(stage: Stage) -> list[Result]:
    count = stage.scale.stored
    with stage.server("memory") as url:
        measured = alternate(
            stage.scale.rounds,
            {
                "lanes": lambda: _measure(stage, url, "lanes", lambda client: _append(url, count)),
                "stock": lambda: _measure(stage, url, "stock", lambda client: _publish(client, url, count)),
            },
        )
    ours, beside = Side("lanes", measured["lanes"]), Side("stock", measured["stock"])
    return [Result("memory", f"per waiting update, {count:,} of {CHATS} chats", "bytes", ours, beside, GOAL)]


def _measure(stage: Stage, url: str, name: str, fill: Callable[[Redis], None]) -> float:
    with emptied(url) as client:
        before = _used(client)
        fill(client)
        each = (_used(client) - before) / stage.scale.stored
    stage.report(f"memory {name}: {each:,.0f} bytes")
    return each


def _append(url: str, count: int) -> None:
    intake = Intake.connect(load(env={"BOT_TOKEN": TOKEN, "REDIS_URL": url}, env_file=None))
    updates = make_updates(count, CHATS)
    while batch := list(islice(updates, BATCH)):
        intake.append(batch)
    intake.close()


def _publish(client: Redis, url: str, count: int) -> None:
    Stock().load(client, url, make_updates(count, CHATS))


def _used(client: Redis) -> int:
    return int(client.info("memory")["used_memory"])
