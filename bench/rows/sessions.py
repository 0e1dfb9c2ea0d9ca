"""Sessions: a backlog of updates, processed by one worker whose bot either does nothing or counts in its session.

The bot that counts reads its session and commits it with each update: two more round trips and an fsync. As in the
throughput row, the backlog is loaded before the worker starts, and the rate is taken between 10 % and 95 % of it.
"""

from __future__ import annotations

from functools import partial
from itertools import islice

from bench.figures import Result, Side
from bench.pace import measure
from bench.rounds import alternate
from bench.scale import CHATS
from bench.sides import BATCH, worker
from bench.stage import Stage, emptied
from bench.updates import make_updates
from chatlanes.settings import load
from chatlanes.updates.intake import Intake

POOLS = (("-P", "prefork", "-c", "2"), ("-P", "threads", "-c", "8"))
BOTS = {"keeps nothing": "bench.bot:do_nothing", "counts in its session": "bench.bot:count"}


def run(stage: Stage) -> list[Result]:
    with stage.server("sessions") as url:
        return [_compare(stage, url, pool) for pool in POOLS[: stage.scale.pools]]


def _compare(stage: Stage, url: str, pool: tuple[str, ...]) -> Result:
    runs = {name: partial(_measure, stage, url, pool, bot) for name, bot in BOTS.items()}
    (nothing, without), (counts, counted) = alternate(stage.scale.rounds, runs).items()
    return Result(
        "sessions", f"no calls, {' '.join(pool)}", "updates/s", Side("lanes", counted, counts), Side(nothing, without)
    )


def _measure(stage: Stage, url: str, pool: tuple[str, ...], bot: str) -> float:
    """Updates per second. Fails if the worker does not shut down cleanly."""
    settings = {"BOT_TOKEN": "1:BENCH", "REDIS_URL": url, "BOT": bot}
    total = stage.scale.sessions
    with emptied(url):
        intake = Intake.connect(load(settings, env_file=None))
        updates = make_updates(total, CHATS)
        while batch := list(islice(updates, BATCH)):
            intake.append(batch)
        with stage.child("sessions-worker", *worker("tasks", url, *pool), **settings) as child:
            rate = measure(intake.pending, total, [child])
        intake.close()
    stage.report(f"{' '.join(pool)} {bot}, {total}: {rate:,.0f}/s")
    return rate
