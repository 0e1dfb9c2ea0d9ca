"""A clock that is set while the bot runs, on the workers or on the server, doubles nothing and loses nothing.

The simulator is the judge: each update is answered once and in order, each timer, occurrence and recipient once.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from celery_lanes.embedded_server import Server, free_port
from celery_lanes.protocol import keys
from chatlanes.settings import secret_from
from tests.conftest import DEBIAN_REDIS
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.test_broadcasts import Broadcast
from tests.pipeline.test_timers import names, noted, texts, waiting
from tests.support.clocks import DAY_S, HOUR_S, Clock
from tests.support.pipeline import TOKEN, Pipeline, message
from tests.support.schedules import firings
from tests.support.waiting import until

BOT = "tests.support.timer_bot:bot"
SCHEDULES = "tests.support.schedules:every_second"
CHATS = range(1, 6)
RECIPIENTS = range(1000, 1300)

#: Nothing may wait for as long as the clock jumps.
WITHIN_S = 120.0


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


@pytest.fixture(params=[None, DEBIAN_REDIS], ids=["valkey", "redis-7.0"])
def jumping_server(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> Iterator[Server]:
    """A server whose clock the test sets."""
    if request.param and not request.param.exists():
        pytest.skip(f"no {request.param}: apt-get install redis-server")
    with clock.server(tmp_path / "redis", request.param) as server:
        yield server


class Traffic:
    """Updates of several chats, each of which also sets a short timer."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._numbers = itertools.count(1)
        self.timers: list[str] = []

    def send(self) -> None:
        """One update to each chat, which is answered, and whose timer runs."""
        number = next(self._numbers)
        self.timers += [f"t{number}x{chat}" for chat in CHATS]
        self.pipeline.push(*(message(number, chat, do=f"later:t{number}x{chat}_300") for chat in CHATS))
        until(lambda: self._missing() == [], WITHIN_S)

    def _missing(self) -> list[str]:
        return sorted(set(self.timers) - set(names(self.pipeline)))

    def check(self) -> None:
        """Each update has run once, in the order of its chat, and each timer once."""
        begun: dict[int, list[str]] = {}
        for event in noted(self.pipeline, "begin"):
            begun.setdefault(event["chat"], []).append(event["text"].rpartition("#")[2])
        last = next(self._numbers)
        assert {chat: begun[chat] for chat in CHATS} == {chat: [str(n) for n in range(1, last)] for chat in CHATS}
        answers = Counter(text for text in texts(self.pipeline) if text.endswith("is due"))
        assert {name: answers[f"{name} is due"] for name in self.timers} == dict.fromkeys(self.timers, 1)


def check_schedule(pipeline: Pipeline) -> None:
    """No occurrence was fired twice, and they were fired in order."""
    fired = [firing.due_ms for firing in firings(pipeline.directory) if firing.what == "end"]
    assert fired == sorted(set(fired))


def ticks(pipeline: Pipeline) -> int:
    return len([firing for firing in firings(pipeline.directory) if firing.what == "end"])


def test_the_clock_of_workers_jumps(make_pipeline: MakePipeline, clock: Clock) -> None:
    # Given a poller and two workers whose clocks jump, a schedule, and a timer for a time of day in half an hour
    pipeline = make_pipeline(BOT=BOT, SCHEDULES=SCHEDULES, LEASE_SECONDS=2, **clock.environment)
    for pool in ("prefork", "threads"):
        pipeline.worker(pool, 2, is_awaited=False)
    pipeline.poller()
    broadcast, traffic = Broadcast(pipeline, RECIPIENTS, rate=30), Traffic(pipeline)
    traffic.send()
    # When they jump by an hour and by a day, forward and back
    for ahead_s in (HOUR_S, 0, -HOUR_S, DAY_S, 0):
        clock.set(ahead_s)
        traffic.send()
        before = ticks(pipeline)
        until(lambda before=before: ticks(pipeline) >= before + 2, WITHIN_S)  # type: ignore[misc]
    # Then nothing has run twice or out of order, or has waited
    broadcast.ended()
    pipeline.drained()
    assert broadcast.reached() == Counter(broadcast.chats)
    traffic.check()
    check_schedule(pipeline)
    assert pipeline.count("expired") == 0


def test_a_time_of_day_is_that_of_the_server(make_pipeline: MakePipeline, clock: Clock) -> None:
    # Given a worker whose clock is an hour ahead
    pipeline = make_pipeline(BOT=BOT)
    pipeline.poller()
    clock.set(HOUR_S)
    pipeline.worker("threads", 2, **clock.environment)
    # When a handler names a time that has passed there, and not on the server, and one that has passed everywhere
    now_s = _now_s(pipeline)
    pipeline.push(message(1, chat=1, do=f"on:noon_{now_s + 1800} on:past_{now_s - 1800}"))
    # Then only the second is due
    until(lambda: names(pipeline) == ["past"])
    pipeline.drained()
    assert waiting(pipeline) == ["noon"]
    assert noted(pipeline, "timer")[0]["late_s"] < WITHIN_S


@pytest.mark.first_only
def test_the_clock_of_the_server_jumps(make_pipeline: MakePipeline, clock: Clock, jumping_server: Server) -> None:
    # Given a schedule, a broadcast, and timers for a time of day in half an hour
    pipeline = make_pipeline(
        redis_url=jumping_server.url, BOT=BOT, SCHEDULES=SCHEDULES, LEASE_SECONDS=2, RATE_PER_CHAT=50
    )
    first = pipeline.worker("threads", 4)
    pipeline.worker("threads", 4)
    pipeline.poller()
    broadcast, traffic = Broadcast(pipeline, RECIPIENTS, rate=30), Traffic(pipeline)
    due_s = _now_s(pipeline) + 1800
    pipeline.push(message(0, 7, do=f"on:noon_{due_s}"))
    # When a few seconds are added and taken back, Then only due timers run
    for ahead_s in (4, 0, 1, -3):
        clock.set(ahead_s)
        traffic.send()
    assert "noon" in waiting(pipeline)
    # When an hour is added while updates run, Then they are not run again, and what is due by then runs
    pipeline.push(message(0, 8, do="gate:a later:slow_300"), message(0, 9, do="gate:a"))
    until(lambda: len([event for event in noted(pipeline, "begin") if event["chat"] in (8, 9)]) == 2)
    clock.set(HOUR_S)
    until(lambda: "noon" in names(pipeline), WITHIN_S)
    traffic.send()
    # When it is taken back, Then timers, the schedule's end and the broadcast do not wait for an hour
    clock.set(0)
    traffic.send()
    pipeline.open("a")
    until(lambda: "slow" in names(pipeline), WITHIN_S)
    assert pipeline.count("expired") == 0
    # When a worker dies whose lease was given an hour ahead, Then its update runs on the other one
    clock.set(HOUR_S)
    pipeline.push(message(0, 10, do="gate:b"), message(0, 11, do="gate:b"), message(0, 12, do="gate:b"))
    until(lambda: len(pipeline.leases()) >= 3, WITHIN_S)
    until(lambda: _now_s(pipeline) - _swept_s(pipeline) < HOUR_S / 2)
    first.kill_all()
    clock.set(0)
    pipeline.open("b")
    until(lambda: {10, 11, 12} <= {event["chat"] for event in noted(pipeline, "handled")}, WITHIN_S)
    traffic.send()
    broadcast.ended()
    pipeline.drained()
    check_reached(broadcast)
    traffic.check()
    check_schedule(pipeline)
    assert Counter(names(pipeline))["noon"] == Counter(names(pipeline))["slow"] == 1


@pytest.mark.first_only
@pytest.mark.parametrize("speed", [0.8, 1.25])
def test_the_clock_of_the_server_drifts(
    make_pipeline: MakePipeline, clock: Clock, tmp_path: Path, speed: float
) -> None:
    # Given a server whose clock runs at another speed than those of its workers, and a handler that outlives its lease
    with clock.server(tmp_path / "redis") as server:
        clock.set(0, speed)
        pipeline = make_pipeline(redis_url=server.url, BOT=BOT, LEASE_SECONDS=4)
        pipeline.worker("threads", 2)
        pipeline.worker("prefork", 2)
        pipeline.poller()
        pipeline.push(message(0, 8, do="gate:a"))
        until(lambda: len(noted(pipeline, "begin")) == 1, WITHIN_S)
        traffic = Traffic(pipeline)
        # When updates and timers run until the clocks differ by a lease
        while abs(_now_s(pipeline) - time.time()) < 4:
            traffic.send()
        # Then every lease was renewed in time, and nothing has run twice or out of order
        pipeline.open("a")
        pipeline.drained()
        traffic.check()
        assert pipeline.count("expired") == 0


def check_reached(broadcast: Broadcast) -> None:
    """Each recipient once; one whose call was in flight when its worker was killed is listed as uncertain."""
    missed = {chat: reason for chat, reason, _ in broadcast.broadcasts.missed(broadcast.id)}
    reached = broadcast.reached()
    assert max(reached.values()) == 1
    assert set(missed.values()) <= {"uncertain"}
    assert set(broadcast.chats) - set(reached) <= set(missed)


def test_a_pause_after_429_ends_when_the_clock_of_the_server_is_set_back(
    make_pipeline: MakePipeline, clock: Clock, tmp_path: Path
) -> None:
    # Given a bot with a rate of which two chats are refused, which pauses the bot, and a broadcast
    with clock.server(tmp_path / "redis") as server:
        pipeline = make_pipeline(redis_url=server.url, LEASE_SECONDS=2, FLOOD_WAIT=0, RATE_PER_BOT=20)
        pipeline.worker("threads", 4)
        pipeline.poller()
        clock.set(HOUR_S)
        for chat in (1, 2):
            pipeline.simulator.fault(chat_id=chat, status=429, retry_after=3, times=1)
        pipeline.push(message(1, 1), message(1, 2))
        until(lambda: pipeline.count("parked") >= 2)
        broadcast = Broadcast(pipeline, range(100, 130))
        # When the clock is set back, Then nothing waits for longer than the pause
        clock.set(0)
        pipeline.push(message(1, 3))
        until(lambda: pipeline.pending() == 0 and broadcast.now.ended_ms, WITHIN_S)
        assert Counter(texts(pipeline))["#1"] >= 3
        assert broadcast.reached() == Counter(broadcast.chats)


def test_updates_that_a_webhook_holds_do_not_wait_when_the_clock_is_set_back(
    make_pipeline: MakePipeline, clock: Clock, tmp_path: Path
) -> None:
    # Given a receiver whose clock jumps too, and an update that waits for a lower one
    with clock.server(tmp_path / "redis") as server:
        pipeline = make_pipeline(redis_url=server.url, BOT=BOT, LEASE_SECONDS=2, WEBHOOK_REORDER=3000)
        port = free_port()
        pipeline.worker("threads", 2)
        pipeline.receiver(port, **clock.environment)
        _post(port, {**message(1, 1), "update_id": 100})
        until(lambda: len(noted(pipeline, "begin")) == 1, WITHIN_S)
        clock.set(HOUR_S)
        until(lambda: int(pipeline.redis.get(keys.SWEPT) or 0) // 1000 > time.time() + HOUR_S / 2, WITHIN_S)
        _post(port, {**message(3, 1), "update_id": 102})
        assert pipeline.state_of(102) == "held"
        # When the clock is set back, Then it runs, and later ones are not held
        clock.set(0)
        until(lambda: len(noted(pipeline, "begin")) == 2, WITHIN_S)
        _post(port, {**message(4, 1), "update_id": 103})
        assert pipeline.state_of(103) != "held"
        until(lambda: len(noted(pipeline, "begin")) == 3, WITHIN_S)
        assert [event["text"] for event in noted(pipeline, "begin")] == [" #1", " #3", " #4"]


def _post(port: int, update: dict[str, Any]) -> None:
    """Like Telegram, again until it is accepted."""
    url, headers = f"http://127.0.0.1:{port}/hook", {"X-Telegram-Bot-Api-Secret-Token": secret_from(TOKEN)}
    until(lambda: requests.post(url, json=update, headers=headers, timeout=60).ok)


def _now_s(pipeline: Pipeline) -> int:
    return int(pipeline.redis.time()[0])


def _swept_s(pipeline: Pipeline) -> int:
    """When the last sweep was. A clock that is set back is noticed by it."""
    return int(pipeline.redis.get(keys.SWEPT) or 0) // 1000
