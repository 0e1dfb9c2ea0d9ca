"""When repeating jobs run."""

from __future__ import annotations

import json
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
import pytz

from chatlanes.bot.adapters.ptb.job_plans import (
    JobError,
    Plan,
    daily,
    interval,
    moment,
    monthly,
    ms_of,
    plan_from,
    plan_json,
    time_of,
)

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
NEW_YORK = ZoneInfo("America/New_York")
BERLIN = ZoneInfo("Europe/Berlin")


def times(plan: Plan, after: datetime, count: int) -> list[str]:
    """The next times in UTC. The plan is stored and read in between."""
    plan, found = plan_from(json.loads(json.dumps(plan_json(plan)))), []
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
