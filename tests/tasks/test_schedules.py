"""The watcher of schedules, on a real Redis."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest
from redis import Redis

from celery_lanes.monitoring import inspection
from celery_lanes.protocol import Store, connect, keys
from chatlanes.bot.bot import Bot
from chatlanes.bot.schedules import MOST_AT_ONCE, Schedule, ScheduleRecord, owner_of
from chatlanes.cli.schedules import recorded
from chatlanes.settings import load
from chatlanes.tasks.bots import ServedBot
from chatlanes.tasks.schedules import LONGEST_PAUSE_MS, SPREAD_S, Watcher
from chatlanes.telegram.client import BotApi
from chatlanes.telegram.flood import Gate, Rates

BOT_ID = 7
HOUR_MS = 3_600_000
DAILY = Schedule("digest", "0 9 * * *", lambda ctx: None, "Europe/Berlin")


@pytest.fixture
def store(redis_url: str) -> Store:
    return Store(connect(redis_url))


def served(*schedules: Schedule) -> list[ServedBot]:
    settings = load({"BOT_TOKEN": f"{BOT_ID}:secret"}, env_file=None)
    gate = Gate(str(BOT_ID), Rates(None, None, None), 1.0)
    by_name = {each.name: each for each in schedules}
    return [ServedBot(settings, Bot(lambda ctx: None), BotApi("http://127.0.0.1", ""), gate, by_name)]


def record_of(store: Store, name: str = "digest") -> ScheduleRecord | None:
    stored = store.schedules()[1].get((owner_of(BOT_ID), name))
    return stored and ScheduleRecord.decode(stored)  # type: ignore[return-value]


def put(store: Store, schedule: Schedule, after_ms: int) -> None:
    place, known = (owner_of(BOT_ID), schedule.name), store.schedules()[1]
    record = ScheduleRecord(schedule.cron, schedule.tz, after_ms)
    assert store.advance(*place, known=known.get(place, b""), record=record.encode())


def fired(client: Redis) -> list[int]:
    """The times of the messages, in their order."""
    ids: Any = inspection.pending(client, "updates", 10_000)
    return [int(message_id.split(":")[2]) for message_id in ids]


def test_many_watchers_fire_each_occurrence_once(store: Store, redis_url: str) -> None:
    # Given ten workers, and occurrences of two hours that all of them find at the same moment
    every_minute = Schedule("tick", "* * * * *", lambda ctx: None, missed="all")
    started_ms = store.schedules()[0]
    put(store, every_minute, started_ms - 2 * HOUR_MS)
    watchers = [Watcher(served(every_minute, DAILY), Store(connect(redis_url))) for _ in range(10)]
    together = Barrier(len(watchers))

    def look(watcher: Watcher) -> float:
        together.wait()
        return watcher.look()

    # When they look
    with ThreadPoolExecutor(len(watchers)) as threads:
        pauses_s = list(threads.map(look, watchers))
    # Then each of the last 100 is there once, in order, and each worker knows when to look next
    times = fired(store.client)
    assert len(times) == MOST_AT_ONCE
    assert times == [times[0] + 60_000 * n for n in range(MOST_AT_ONCE)]
    assert times[-1] <= store.schedules()[0]
    assert all(0 <= pause_s <= LONGEST_PAUSE_MS / 1000 + SPREAD_S for pause_s in pauses_s)


def test_a_schedule_of_an_emptied_redis_begins_now(store: Store) -> None:
    watcher = Watcher(served(DAILY), store)
    watcher.look()
    store.client.flushall()
    before_ms = store.schedules()[0]
    watcher.look()
    record = record_of(store)
    assert record is not None
    assert record.after_ms >= before_ms
    assert fired(store.client) == []


def test_a_worker_with_the_former_expression_does_not_fire(store: Store) -> None:
    # Given a worker, and a newer one with another expression
    former, newer = Watcher(served(DAILY), store), Watcher(served(replace(DAILY, cron="0 8 * * *")), store)
    former.look()
    newer.look()
    record = record_of(store)
    assert record is not None
    assert record.cron == "0 8 * * *"
    # When the newer schedule is due, and so would be the former one
    put(store, replace(DAILY, cron="0 8 * * *"), store.schedules()[0] - 24 * HOUR_MS)
    former.look()
    assert fired(store.client) == []
    # Then the newer worker fires
    newer.look()
    assert len(fired(store.client)) == 1


def test_nothing_is_fired_twice_when_the_clock_of_redis_was_set_back(store: Store) -> None:
    # Given a schedule that was fired by a clock that was two days ahead
    put(store, DAILY, store.schedules()[0] + 48 * HOUR_MS)
    Watcher(served(DAILY), store).look()
    assert fired(store.client) == []


def test_each_bot_removes_only_its_own_schedules(store: Store) -> None:
    others = (owner_of(8), "digest"), ("task", "eta")
    for owner, name in others:
        store.advance(owner, name, known=b"", record=b"{}")
    put(store, replace(DAILY, name="former"), 0)
    Watcher(served(DAILY), store).look()
    stored = store.schedules()[1]
    assert ScheduleRecord.decode(stored.pop((owner_of(BOT_ID), "former"))).is_removed
    assert set(stored) == {*others, (owner_of(BOT_ID), "digest")}
    assert store.client.exists(keys.SCHEDULES)


def test_a_worker_that_started_earlier_does_not_revive_what_a_newer_one_has_removed(store: Store) -> None:
    # Given a worker with a schedule that is due, and a newer one without it
    former, newer = Watcher(served(DAILY, replace(DAILY, name="other")), store), Watcher(served(DAILY), store)
    former.look()
    put(store, replace(DAILY, name="other"), store.schedules()[0] - 24 * HOUR_MS)
    newer.look()
    # When the former one looks, then it fires nothing, and the record is not there any more
    former.look()
    assert fired(store.client) == []
    assert [each.name for each in recorded(store)[1]] == ["digest"]
    # And with the next version the schedule begins anew
    before_ms = store.schedules()[0]
    Watcher(served(DAILY, replace(DAILY, name="other")), store).look()
    begun = record_of(store, "other")
    assert begun is not None
    assert begun.after_ms >= before_ms
    assert fired(store.client) == []


def test_a_removed_schedule_is_forgotten_after_a_day(store: Store) -> None:
    place = owner_of(BOT_ID), "former"
    for hours in (23, 25):
        known = store.schedules()[1].get(place, b"")
        removed = ScheduleRecord.removed(store.schedules()[0] - hours * HOUR_MS)
        assert store.advance(*place, known=known, record=removed.encode())
        Watcher(served(DAILY), store).look()
        assert (place in store.schedules()[1]) == (hours == 23)
