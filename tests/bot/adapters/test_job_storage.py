"""Jobs outside of updates: where they are stored, and that the starts of a bot set them once."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from time import monotonic
from zoneinfo import ZoneInfo

import pytest
import pytz
from redis import Redis
from telegram.ext import Application

from celery_lanes.protocol import Store
from chatlanes.bot.adapters.ptb import job_queue
from chatlanes.bot.adapters.ptb.job_plans import (
    Calendar,
    Interval,
    JobError,
    Plan,
    daily,
    interval,
    moment,
    monthly,
    ms_of,
    plan_from,
)
from chatlanes.bot.adapters.ptb.job_storage import JobRecord, JobStorage, origin_of, record_of
from chatlanes.bot.timers import time_of
from tests.support.pipeline import BOT_ID, TOKEN

HOUR_MS = 3_600_000
LEASE_MS = 10_000
#: Long ago, so that the plan has a phase of its own.
HOURLY = Interval(HOUR_MS, 1_700_000_000_123)
QUEUES = [f"updates.{number}" for number in range(8)]


@pytest.fixture
def storage(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> JobStorage:
    monkeypatch.setenv("BOT_TOKEN", TOKEN)
    monkeypatch.setenv("REDIS_URL", redis_url)
    return JobStorage(TOKEN)


@pytest.fixture
def client(redis_url: str) -> Redis:
    return Redis.from_url(redis_url)


def record(id_: str = "1", plan: Plan | None = HOURLY, chat: int | None = 7, user: int | None = None) -> JobRecord:
    return JobRecord(id_, "tell", "mybot:tell", "null", chat, user, plan)


def of_start(plan: Plan | None = HOURLY, number: int = 0, data: str = "null") -> JobRecord:
    started = replace(record(f"start:{number}", plan), data=data)
    return replace(started, origin=origin_of(plan, data))


def due(client: Redis) -> dict[str, int]:
    """When each timer is due, by its name."""
    timers = client.zrange("lanes:timers", 0, -1, withscores=True)
    return {name.decode().partition("\n")[2]: int(at_ms) for name, at_ms in timers}


def fire(client: Redis) -> int:
    """Make the next timer due, and take its message. Returns how many messages there were."""
    client.zadd("lanes:timers", {client.zrange("lanes:timers", 0, 0)[0]: 1})
    store = Store(client)
    store.sweep(LEASE_MS)
    leased = store.turn(QUEUES, holder="w", lease_ms=LEASE_MS, room=9).leased
    for message in leased:
        store.commit(message.id, message.fence)
    return len(leased)


@pytest.mark.parametrize(
    ("order_by", "chat", "user", "lanes"),
    [
        ("chat", 7, 5, ["chat:7"]),
        ("chat", None, 5, ["chat:5"]),
        ("chat", None, None, ["job:tell"]),
        ("chat+user", -7, 5, ["chat:-7", "user:5"]),
        ("user", None, 5, ["user:5"]),
        ("bot", None, None, ["bot"]),
    ],
)
def test_lanes_of_jobs(
    storage: JobStorage,
    client: Redis,
    monkeypatch: pytest.MonkeyPatch,
    order_by: str,
    chat: int | None,
    user: int | None,
    lanes: list[str],
) -> None:
    monkeypatch.setenv("ORDER_BY", order_by)
    storage.set(record(plan=None, chat=chat, user=user), None, 1000)
    [timer] = Store(client).next_timers()
    assert timer.lanes == [f"{BOT_ID}/{key}" for key in lanes]
    assert timer.id.startswith(f"{BOT_ID}:timer:")


def test_jobs_are_found_by_name(storage: JobStorage) -> None:
    once, hourly = record("1", None, chat=8), replace(record("2"), name="other*\n")
    for number in range(3, 9):
        storage.set(replace(once, id=str(number), chat_id=number, name="another"), None, number)
    storage.set(once, None, HOUR_MS * 2)
    storage.set(hourly, HOURLY.next_ms(storage.now_ms()))
    assert [found.record for found in storage.named("tell")] == [once]
    assert [found.record for found in storage.named("other*\n")] == [hourly]
    assert [found.record.chat_id for found in storage.all()] == [3, 4, 5, 6, 7, 8, 7, 8]
    storage.remove(hourly)
    storage.remove(once)
    assert {found.record.name for found in storage.all()} == {"another"}


def test_every_start_sets_the_same_jobs(storage: JobStorage, client: Redis) -> None:
    morning, evening = (daily(time(hour), (0, 1, 2, 3, 4, 5, 6), UTC) for hour in (8, 20))
    for _ in range(3):
        for number, plan in enumerate((HOURLY, morning, evening)):
            storage.ensure_repeating(of_start(plan, number), plan)
    before = due(client)
    assert [before[f"start:{number} next"] % HOUR_MS for number in range(3)] == [HOURLY.start_ms % HOUR_MS, 0, 0]
    # A start after one that died between its two steps sets the next run
    [timer] = [name for name in client.zrange("lanes:timers", 0, -1) if name.endswith(b"start:0 next")]
    Store(client).cancel(*timer.decode().split("\n"))
    later = Interval(HOUR_MS, HOURLY.start_ms + 1)
    storage.ensure_repeating(of_start(later), later)
    assert due(client) == before


@pytest.mark.parametrize("changed", [of_start(Interval(2 * HOUR_MS, 0)), of_start(Calendar(0, "UTC", (1,)))])
def test_a_changed_plan_replaces_the_job(storage: JobStorage, client: Redis, changed: JobRecord) -> None:
    assert changed.plan
    storage.ensure_repeating(of_start(), HOURLY)
    storage.ensure_repeating(changed, changed.plan)
    assert due(client)["start:0 next"] == changed.plan.next_ms(storage.now_ms())
    assert [found.record for found in storage.all()] == [changed]
    # So does changed data, but not data that a run has changed
    storage.ensure_repeating(new := of_start(changed.plan, data='"x"'), changed.plan)
    assert [found.record for found in storage.all()] == [new]
    storage.write(replace(new, data='"y"'))
    storage.ensure_repeating(new, changed.plan)
    assert [found.record.data for found in storage.all()] == ['"y"']


def test_a_start_does_not_repeat_jobs_that_handlers_have_set(storage: JobStorage, client: Redis) -> None:
    storage.set(record("1"), HOURLY.next_ms(storage.now_ms()))
    storage.set(record("2", None), None, HOUR_MS)
    before = due(client)
    storage.ensure_repeating(of_start(), HOURLY)
    storage.ensure_once(of_start(None, 1), 0, None, 1000, ("a", 1))
    assert due(client) == before
    # A second job that runs once is another one
    storage.ensure_once(of_start(None, 2), 1, None, 1000, ("a", 2))
    assert set(due(client)) == {*before, "start:2"}


def test_a_start_sets_a_job_that_runs_once_only_once(storage: JobStorage, client: Redis) -> None:
    for start, expected in (("a", 1), ("a", 0), ("b", 1)):
        storage.ensure_once(of_start(None), 0, None, 1000, (start, 0))
        storage.ensure_once(of_start(None), 0, None, 1000, (start, 0))
        assert len(due(client)) == expected
        if expected:
            assert fire(client) == 1
    # One for a time that has passed is not set
    storage.ensure_once(of_start(None), 0, storage.now_ms() - 1, 0, ("c", 0))
    assert due(client) == {}


def test_a_run_sets_the_next_one(storage: JobStorage, client: Redis) -> None:
    storage.set(job := record(), HOURLY.next_ms(storage.now_ms()))
    # A late run is followed by the next time of the plan
    assert fire(client) == 1
    found, next_ms = storage.continue_(record_of(job.next_update["job"])) or (None, None)
    assert (found, next_ms) == (job, HOURLY.next_ms(storage.now_ms()))
    assert due(client)["1 next"] == next_ms
    # A second attempt changes nothing
    assert storage.continue_(record_of(job.next_update["job"])) == (job, next_ms)
    # A job that was removed does not continue
    storage.remove(job)
    assert storage.continue_(record_of(job.next_update["job"])) is None
    assert due(client) == {}
    # Nor does one whose last time has passed, and its record ends
    last_ms = storage.now_ms() - 1
    over = replace(job, plan=Interval(HOUR_MS, 0, last_ms))
    storage.set(over, None, HOUR_MS)
    assert storage.continue_(record_of(over.next_update["job"])) == (over, None)
    assert due(client)["1"] == last_ms + 24 * HOUR_MS


def test_a_daily_job_keeps_to_the_wall_clock_when_summer_time_begins(
    storage: JobStorage, client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = record(plan=daily(time(8), (0, 1, 2, 3, 4, 5, 6), ZoneInfo("Europe/Berlin")))
    storage.set(job, None, 1000)
    for now, expected in (("03-26T07:00:00.010", "03-27T07"), ("03-27T09:30", "03-28T06"), ("03-28T06:00", "03-29T06")):
        assert fire(client) == 1
        now_ms = ms_of(datetime.fromisoformat(f"2060-{now}Z"))
        monkeypatch.setattr(storage, "now_ms", lambda now_ms=now_ms: now_ms)
        assert storage.continue_(record_of(job.next_update["job"]))
        assert due(client)["1 next"] == ms_of(datetime.fromisoformat(f"2060-{expected}:00Z"))


async def tell(_: object) -> None:
    """The callback of a job."""


def test_a_process_that_replaces_another_one_later_does_not_set_jobs_that_run_once(
    storage: JobStorage, client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    for started_h, expected in ((47.5, 0), (46.5, 1)):
        monkeypatch.setattr(job_queue, "_STARTED_S", monotonic() - started_h * 3600)
        queue = job_queue.LaneJobQueue(Application.builder().token(TOKEN).build())
        queue.begin_start()
        queue.run_once(tell, 3600)
        queue.run_repeating(tell, 3600)
        queue.end_start()
        # A repeating job has two timers
        assert len(due(client)) == 2 + expected


def test_what_the_job_queue_does_not_have_is_named(storage: JobStorage) -> None:
    queue = job_queue.LaneJobQueue(Application.builder().token(TOKEN).build())
    job = queue.run_once(tell, 3600)
    for wrong in (lambda: queue.scheduler.get_jobs(), lambda: job.job.pause(), lambda: job.trigger):
        with pytest.raises(JobError, match="APScheduler does not run the jobs here"):
            wrong()
    with pytest.raises(AttributeError, match="no scheduler_configuration here"):
        _ = queue.scheduler_configuration
    for arguments in ({"name": 5}, {"chat_id": "@channel"}, {"user_id": "7"}):
        with pytest.raises(JobError, match="use a text as the name, and numbers as the ids"):
            queue.run_once(tell, 1, **arguments)
    assert queue.get_jobs_by_name(5) == ()  # type: ignore[arg-type]


NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
NEW_YORK = ZoneInfo("America/New_York")
BERLIN = ZoneInfo("Europe/Berlin")


def times(plan: Plan, after: datetime, count: int) -> list[str]:
    """The next times in UTC. The plan is stored and read in between."""
    plan, found = plan_from(json.loads(json.dumps(asdict(plan)))), []
    for _ in range(count):
        due_ms = plan.next_ms(ms_of(after))
        if due_ms is None:
            break
        after = time_of(due_ms)
        found.append(f"{after:%m-%d %H:%M:%S}")
    return found


def test_interval() -> None:
    hourly = interval(3600, None, None, UTC, NOW)
    assert times(hourly, NOW, 2) == ["03-10 13:00:00", "03-10 14:00:00"]
    # After an outage it continues at the times of its plan
    assert times(hourly, NOW + timedelta(hours=5.5), 1) == ["03-10 18:00:00"]
    # `first` and `last` may be any kind of time; a time of day is today's
    limited = interval(timedelta(minutes=40), time(12, 10), timedelta(hours=1), UTC, NOW)
    assert times(limited, NOW, 9) == ["03-10 12:10:00", "03-10 12:50:00"]
    past = interval(60, datetime(2026, 3, 10, 11, 59, 30, tzinfo=UTC), None, UTC, NOW)
    assert times(past, NOW, 1) == ["03-10 12:00:30"]


def test_time_of_day() -> None:
    # Without a zone it is in that of the bot, and the wall clock decides
    assert times(daily(time(8), (0, 1, 2, 3, 4, 5, 6), BERLIN), datetime(2026, 3, 28, 0, tzinfo=UTC), 2) == [
        "03-28 07:00:00",
        "03-29 06:00:00",
    ]
    # A time that is skipped is due an hour later by the clock; one that occurs twice is due once
    assert times(daily(time(2, 30, tzinfo=NEW_YORK), (0,), UTC), datetime(2026, 3, 7, tzinfo=UTC), 2) == [
        "03-08 07:30:00",
        "03-15 06:30:00",
    ]
    assert times(daily(time(1, 30), (0, 1), NEW_YORK), datetime(2026, 11, 1, tzinfo=UTC), 2) == [
        "11-01 05:30:00",
        "11-02 06:30:00",
    ]
    # 0 is Sunday, 6 is Saturday
    assert times(daily(time(9), (6, 0), UTC), NOW, 2) == ["03-14 09:00:00", "03-15 09:00:00"]


def test_day_of_the_month() -> None:
    assert times(monthly(time(9), 31, UTC), NOW, 3) == ["03-31 09:00:00", "05-31 09:00:00", "07-31 09:00:00"]
    assert times(monthly(time(9), -1, UTC), NOW, 2) == ["03-31 09:00:00", "04-30 09:00:00"]
    assert times(monthly(time(23, 59, 59), 1, BERLIN), NOW, 1) == ["04-01 21:59:59"]


@pytest.mark.parametrize(
    ("zone", "due"),
    [
        (pytz.timezone("Europe/Berlin"), "03-11 07:00:00"),
        (pytz.utc, "03-11 08:00:00"),
        (pytz.FixedOffset(90), "03-11 06:30:00"),
        (timezone(timedelta(hours=-3)), "03-11 11:00:00"),
    ],
)
def test_zones_are_stored(zone: tzinfo, due: str) -> None:
    assert times(daily(time(8, tzinfo=zone), (3,), UTC), NOW, 1) == [due]


def test_times_as_in_python_telegram_bot() -> None:
    assert moment(90, UTC, NOW) == NOW + timedelta(seconds=90)
    assert moment(time(11), UTC, NOW, is_next=True) == datetime(2026, 3, 11, 11, tzinfo=UTC)
    assert moment(time(11, tzinfo=NEW_YORK), UTC, NOW, is_next=True) == datetime(2026, 3, 10, 15, tzinfo=UTC)
    berlin = pytz.timezone("Europe/Berlin")
    for zone in (BERLIN, berlin):
        assert moment(datetime(2026, 7, 1, 12), zone, NOW) == datetime(2026, 7, 1, 10, tzinfo=UTC)


class Nameless(tzinfo):
    def utcoffset(self, _: datetime | None) -> None:
        return None


def test_wrong_arguments_are_refused() -> None:
    for wrong in (
        lambda: interval(0, None, None, UTC, NOW),
        lambda: interval(60, 90, 30, UTC, NOW),
        lambda: interval("60", None, None, UTC, NOW),  # type: ignore[arg-type]
        lambda: interval(float("nan"), None, None, UTC, NOW),
        lambda: moment(float("inf"), UTC, NOW),
        lambda: daily(time(8), (7,), UTC),
        lambda: daily(time(8), (), UTC),
        lambda: daily(NOW, (1,), UTC),  # type: ignore[arg-type]
        lambda: daily(time(8, tzinfo=Nameless()), (1,), UTC),
        lambda: monthly(time(8), 0, UTC),
        lambda: moment("8:00", UTC, NOW),  # type: ignore[arg-type]
    ):
        with pytest.raises(JobError):
            wrong()
