"""Sessions: a backlog of updates, processed by one worker whose bot either does nothing or counts in its session.

The bot that counts reads its session and commits it with each update: two more round trips and an fsync. As in the
throughput row, the backlog is loaded before the worker starts, and the rate is taken between 10 % and 95 % of it.
"""

from __future__ import annotations

from functools import partial
from itertools import islice

from bench.load.updates import make_updates
from bench.measure.backlog_rate import measure
from bench.measure.figures import Result, Side
from bench.measure.harness import Harness, emptied
from bench.measure.rounds import alternate
from bench.measure.scale import CHATS
from bench.systems.backlogs import BATCH, worker
from chatlanes.settings import load
from chatlanes.updates.intake import Intake

POOLS = (("-P", "prefork", "-c", "2"), ("-P", "threads", "-c", "8"))
BOTS = {"keeps nothing": "bench.apps.bot:do_nothing", "counts in its session": "bench.apps.bot:count"}


def run(harness: Harness) -> list[Result]:
    with harness.server("sessions") as url:
        return [_compare(harness, url, pool) for pool in POOLS[: harness.scale.pools]]


def _compare(harness: Harness, url: str, pool: tuple[str, ...]) -> Result:
    runs = {name: partial(_measure, harness, url, pool, bot) for name, bot in BOTS.items()}
    (nothing, without), (counts, counted) = alternate(harness.scale.rounds, runs).items()
    return Result(
        "sessions", f"no calls, {' '.join(pool)}", "updates/s", Side("lanes", counted, counts), Side(nothing, without)
    )


def _measure(harness: Harness, url: str, pool: tuple[str, ...], bot: str) -> float:
    """Updates per second. Fails if the worker does not shut down cleanly."""
    settings = {"BOT_TOKEN": "1:BENCH", "REDIS_URL": url, "BOT": bot}
    total = harness.scale.sessions
    with emptied(url):
        intake = Intake.connect(load(settings, env_file=None))
        updates = make_updates(total, CHATS)
        while batch := list(islice(updates, BATCH)):
            intake.append(batch)
        with harness.child("sessions-worker", *worker("tasks", url, *pool), **settings) as child:
            rate = measure(intake.pending, total, [child])
        intake.close()
    harness.report(f"{' '.join(pool)} {bot}, {total}: {rate:,.0f}/s")
    return rate
