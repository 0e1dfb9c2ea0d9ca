"""Memory: what one waiting update takes in Redis, with everything that the server stores for it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from redis import Redis

from bench.load.simulator import TOKEN
from bench.load.updates import make_updates
from bench.measure.figures import Goal, Result, Side
from bench.measure.harness import Harness, emptied
from bench.measure.rounds import alternate
from bench.measure.scale import CHATS
from bench.systems.backlogs import BATCH, Stock
from chatlanes.settings import load
from chatlanes.updates.intake import Intake

GOAL = Goal("value", "at most", 1_200)


def run(harness: Harness) -> list[Result]:
    count = harness.scale.stored
    with harness.server("memory") as url:
        measured = alternate(
            harness.scale.rounds,
            {
                "lanes": lambda: _measure(harness, url, "lanes", lambda client: _append(url, count)),
                "stock": lambda: _measure(harness, url, "stock", lambda client: _publish(client, url, count)),
            },
        )
    ours, beside = Side("lanes", measured["lanes"]), Side("stock", measured["stock"])
    return [Result("memory", f"per waiting update, {count:,} of {CHATS} chats", "bytes", ours, beside, GOAL)]


def _measure(harness: Harness, url: str, name: str, fill: Callable[[Redis], None]) -> float:
    with emptied(url) as client:
        before = _used(client)
        fill(client)
        each = (_used(client) - before) / harness.scale.stored
    harness.report(f"memory {name}: {each:,.0f} bytes")
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
