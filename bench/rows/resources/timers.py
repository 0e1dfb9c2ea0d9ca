"""Timers: what a waiting one takes in Redis, what many cost an idle worker, and how late they fire.

A timer is one of a bot, with a name and no data; each is in a chat of its own. Lateness is measured at the start of the
task, while 1,000 are due in each second.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
from redis import Redis

from bench.apps.bot import STARTS
from bench.measure.backlog_rate import until
from bench.measure.figures import Goal, Result, Side, percentile
from bench.measure.harness import BenchProcess, Harness, emptied
from bench.measure.scale import QUEUES, READY
from bench.measure.usage import idle_cpu_s
from bench.systems.backlogs import LanesSide, lane_message, worker
from celery_lanes.protocol import NewMessage, Store, use_texts
from chatlanes.updates.intake import pack_update
from chatlanes.updates.timer_texts import TIMER_TEXTS

BYTES = Goal("value", "at most", 400)
LATE_MS = Goal("value", "at most", 1_000)
BOT, HOUR_MS, A_SECOND = "7123456789", 3_600_000, 1_000
POOL = ("-P", "threads", "-c", "8")
#: Time to set the timers of a round before the first one is due.
AHEAD_S = 3


def run(harness: Harness) -> list[Result]:
    count = harness.scale.timers
    each, idle, none, middle, worst = [], [], [], [], []
    with harness.server("timers") as url, emptied(url) as client:
        for _ in range(harness.scale.rounds):
            with _worker(harness, url) as (child, _starts):
                none.append(_used_ms(harness, child))
            each.append(_fill(client, count))
            with _worker(harness, url) as (child, _starts):
                idle.append(_used_ms(harness, child))
            client.flushall()
            with _worker(harness, url) as (child, starts):
                late_ms = _fire(harness, client, child, starts)
            middle.append(percentile(late_ms, 50))
            worst.append(percentile(late_ms, 99))
            harness.report(f"timers: {each[-1]:,.0f} bytes, {idle[-1]:.1f} ms/s, p99 {worst[-1]:,.0f} ms late")
            client.flushall()
    fired = f"{A_SECOND:,} due in each second"
    return [
        Result("timers", f"per waiting timer, {count:,}", "bytes", Side("lanes", each), goal=BYTES),
        Result("timers", f"idle worker, {count:,} wait", "ms/s", Side("lanes", idle), Side("none waits", none)),
        Result("timers", f"late at the median, {fired}", "ms", Side("lanes", middle)),
        Result("timers", f"late at the 99th percentile, {fired}", "ms", Side("lanes", worst), goal=LATE_MS),
    ]


def _fill(client: Redis, count: int) -> float:
    """Bytes for each timer."""
    use_texts(TIMER_TEXTS)
    store = Store(client)
    store.schedule(NewMessage("first", "updates.0", b"", []), "first", "x", in_ms=HOUR_MS)  # loads the script
    before = _memory(client)
    client.config_set("appendfsync", "no")
    for chat in range(100_000_000, 100_000_000 + count):
        key = f"{BOT}/chat:{chat}"
        timer = {"name": "remind", "chat": {"id": chat, "type": "private"}, "from": {"id": chat}}
        stored = pack_update(f"(timer, chat {chat})", orjson.dumps({"timer": timer}))
        store.schedule(NewMessage(f"{BOT}:timer:", "updates.0", stored, [key]), key, "remind", in_ms=HOUR_MS)
    client.config_set("appendfsync", "always")
    return (_memory(client) - before) / count


def _memory(client: Redis) -> int:
    return int(client.info("memory")["used_memory"])


def _used_ms(harness: Harness, child: BenchProcess) -> float:
    before_s, began_s = idle_cpu_s(child.pid), time.monotonic()
    time.sleep(harness.scale.idle_s)
    return (idle_cpu_s(child.pid) - before_s) / (time.monotonic() - began_s) * 1000


def _fire(harness: Harness, client: Redis, child: BenchProcess, starts: Path) -> list[float]:
    """How late each timer started, ms."""
    store, count = Store(client), harness.scale.fired
    first_ms, first_s = time.time() * 1000 + AHEAD_S * 1000, time.monotonic() + AHEAD_S
    client.config_set("appendfsync", "no")
    for number in range(1, count + 1):
        after_ms = number * 1000 / A_SECOND
        update = {"update_id": number, "message": {"chat": {"id": number, "type": "private"}}}
        message = lane_message({**update, "answered_at": first_s + after_ms / 1000}, "bench.start", queues=QUEUES)
        store.schedule(message._replace(once=None), f"chat:{number}", "x", at_ms=int(first_ms + after_ms))
    client.config_set("appendfsync", "always")
    until(lambda: starts.exists() and len(starts.read_text().split()) >= count, [child], f"{count} have started")
    return list(map(float, starts.read_text().split()))


@contextmanager
def _worker(harness: Harness, url: str) -> Iterator[tuple[BenchProcess, Path]]:
    starts = harness.directory / f"starts-{time.monotonic_ns()}"
    with harness.child("timers-worker", *worker(LanesSide.app, url, *POOL), **{STARTS: str(starts)}) as child:
        until(lambda: child.has_printed(READY), [child], "the worker is ready")
        yield child, starts
