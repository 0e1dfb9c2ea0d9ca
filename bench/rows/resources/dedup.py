"""Dedup: the memory that Redis needs to remember 50 million consecutive update ids.

One bitmap is measured, filled by real appends in batches of 100, as Telegram returns them. All bitmaps have the same
size, so the result is multiplied.
"""

from __future__ import annotations

from math import ceil

from bench.measure.figures import Goal, Result, Side
from bench.measure.harness import Harness, emptied
from celery_lanes.protocol import NewMessage, Store
from celery_lanes.protocol.keys import SEEN, SEEN_BLOCK

REMEMBERED = 50_000_000
#: Updates in an answer to getUpdates.
BATCH = 100
#: MB
GOAL = Goal("value", "at most", 10)


def run(harness: Harness) -> list[Result]:
    with harness.server("dedup") as url, emptied(url) as client:
        store = Store(client)
        ids = range(SEEN_BLOCK - 1, -1, -harness.scale.seen_every)
        for first in range(0, len(ids), BATCH):
            store.append([NewMessage(f"m{n}", "q", "", [], once=("bot", n)) for n in ids[first : first + BATCH]])
        one = int(client.memory_usage(f"{SEEN}bot:0") or 0)
    megabytes = one * ceil(REMEMBERED / SEEN_BLOCK) / 1e6
    harness.report(f"dedup: {one:,} bytes for {SEEN_BLOCK:,} ids")
    return [Result("dedup", f"{REMEMBERED:,} consecutive update ids", "MB", Side("lanes", [megabytes]), goal=GOAL)]
