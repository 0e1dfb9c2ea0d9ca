"""A list of schedules that cannot run is refused with one sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import islice
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlanes.bot.bot import Bot
from chatlanes.bot.context import Context
from chatlanes.bot.loader import load_schedules
from chatlanes.bot.schedules import (
    MISSED_AFTER_MS,
    MOST_AT_ONCE,
    Clockwork,
    Due,
    Missed,
    Schedule,
    ScheduleRecord,
    due,
)
from chatlanes.settings.imports import ImportPathError
from chatlanes.telegram.client import BotApi


def send(ctx: Any) -> str:
    return f"sent {ctx}"


async def send_async(ctx: Context) -> str:
    return ctx.kind


def loaded(monkeypatch: pytest.MonkeyPatch, value: Any) -> dict[str, Schedule]:
    module = ModuleType("scheduled_bot")
    module.schedules = value  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "scheduled_bot", module)
    return load_schedules("scheduled_bot:schedules", "SCHEDULES", Bot(send))


def refused(monkeypatch: pytest.MonkeyPatch, value: Any) -> str:
    with pytest.raises(ImportPathError) as caught:
        loaded(monkeypatch, value)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix("SCHEDULES=scheduled_bot:schedules")


def test_functions_and_coroutine_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    found = loaded(
        monkeypatch, [Schedule("a", "0 9 * * mon-fri", send), Schedule("b", "*/10 * * * * *", send_async, "Asia/Tokyo")]
    )
    assert list(found) == ["a", "b"]
    ctx = Context({"schedule": {"name": "b", "tz": "UTC", "due_ms": 1000}}, BotApi("http://127.0.0.1", ""))
    assert found["a"].function(ctx) == f"sent {ctx}"
    assert found["b"].function(ctx) == "schedule"


def test_due_is_in_the_zone_of_the_schedule() -> None:
    ctx = Context({"schedule": {"name": "a", "tz": "Asia/Tokyo", "due_ms": 1000}}, BotApi("http://127.0.0.1", ""))
    assert ctx.schedule.due.isoformat() == "1970-01-01T09:00:01+09:00"


WRITE = "write minute, hour, day, month and weekday, such as 0 9 * * mon-fri."


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("a", "0 25 * * *", send), f"Schedule('a'): '0 25 * * *' is not a cron expression (Bad hour); {WRITE}"),
        (("a", "@daily", send), f"Schedule('a'): '@daily' is not a cron expression (Wrong number of fields); {WRITE}"),
        (("a", 9, send), f"Schedule('a'): 9 is not a cron expression; {WRITE}"),
        (
            ("a", "0 0 30 2 *", send),
            "Schedule('a'): '0 0 30 2 *' is not a cron expression (Bad day-of-month); write",
        ),
        (("a", "0 0 */20 * 1L", send), "Schedule('a'): '0 0 */20 * 1L' never occurs; correct its days and months."),
        (
            ("a", "0 9 * * *", send, "Berlin"),
            "Schedule('a'): there is no time zone 'Berlin'; write a name such as Europe/Berlin.",
        ),
        (
            ("a", "0 9 * * *", send, "../passwd"),
            "Schedule('a'): there is no time zone '../passwd'; write a name such as Europe/Berlin.",
        ),
        (("a", "0 9 * * *", "send"), "Schedule('a'): function='send' cannot be called; write a function, as `def"),
        (("a", "0 9 * * *", lambda: None), "Schedule('a'): function cannot be called with one argument; write a"),
        (("a", "0 9 * * *", send, "UTC", "once"), "Schedule('a'): missed='once': write 'run', 'all', 'skip'."),
        (("a b", "0 9 * * *", send), "Schedule('a b'): a name has 1 to 64 of A-Z a-z 0-9 _ . -."),
        ((7, "0 9 * * *", send), "Schedule(7): a name has 1 to 64 of A-Z a-z 0-9 _ . -."),
    ],
)
def test_a_wrong_schedule_is_named(monkeypatch: pytest.MonkeyPatch, arguments: Any, sentence: str) -> None:
    assert refused(monkeypatch, [Schedule(*arguments)]).startswith(f": {sentence}")


def test_what_is_not_a_list_of_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Schedule("a", "0 9 * * *", send)
    assert refused(monkeypatch, one) == " is a Schedule: write a list, such as [Schedule(…), Schedule(…)]."
    assert refused(monkeypatch, [one, send]).endswith("which is not a Schedule: write Schedule(…).")
    assert refused(monkeypatch, [one, Schedule("a", "0 8 * * *", send)]) == (
        ": two schedules are named 'a'; give each a name of its own."
    )


BERLIN = "Europe/Berlin"
MINUTE_MS, DAY_MS = 60_000, 86_400_000


def ms(text: str) -> int:
    """2026-03-29T01:00:00Z, or with another offset."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def shown(clockwork: Clockwork, after: str, number: int) -> list[str]:
    times = islice(clockwork.after(ms(after)), number)
    return [datetime.fromtimestamp(each / 1000, UTC).strftime("%d %H:%M:%S") for each in times]


# In Berlin, 02:00 becomes 03:00 on 29 March 2026 at 01:00 UTC, and 03:00 becomes 02:00 on 25 October at 01:00 UTC.


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("30 2 * * *", ["28 01:30:00", "29 01:00:00", "30 00:30:00"]),  # at the end of the gap, 03:00
        ("30 3 * * *", ["28 02:30:00", "29 01:30:00", "30 01:30:00"]),  # as on every day
        ("0 2,3 * * *", ["28 01:00:00", "28 02:00:00", "29 01:00:00"]),  # both at 03:00: once
    ],
)
def test_a_time_that_is_skipped_in_spring(cron: str, expected: list[str]) -> None:
    assert shown(Clockwork(cron, BERLIN), "2026-03-28T00:00:00Z", 3) == expected


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("30 2 * * *", ["25 00:30:00", "26 01:30:00"]),  # the first 02:30 of two
        ("30 * * * *", ["24 23:30:00", "25 00:30:00", "25 01:30:00"]),  # every hour, also the repeated one
        ("0 30 2 * * *", ["25 00:30:00", "25 01:30:00"]),  # with seconds: follows the clock
    ],
)
def test_a_time_that_is_repeated_in_autumn(cron: str, expected: list[str]) -> None:
    assert shown(Clockwork(cron, BERLIN), "2026-10-24T23:00:00Z", len(expected)) == expected


@pytest.mark.parametrize(
    ("tz", "day"), [("Asia/Beirut", "2026-03-29"), ("America/Havana", "2026-03-08"), ("America/Santiago", "2026-09-06")]
)
def test_a_midnight_that_does_not_exist(tz: str, day: str) -> None:
    # Given a day that begins at 01:00
    zone = ZoneInfo(tz)
    noon_before = datetime.fromisoformat(f"{day}T12:00:00").replace(tzinfo=zone) - timedelta(days=1)
    after_ms = round(noon_before.timestamp() * 1000)

    def times(cron: str) -> list[str]:
        found = islice(Clockwork(cron, tz).after(after_ms), 2)
        return [f"{datetime.fromtimestamp(each / 1000, zone):%d %H:%M}" for each in found]

    first, second = day[-2:], f"{int(day[-2:]) + 1:02}"
    assert times("0 0 * * *") == [f"{first} 01:00", f"{second} 00:00"]
    assert times("0 0,1 * * *") == [f"{first} 01:00", f"{second} 00:00"]
    assert times("0 0 0 * * *")[0] == f"{second} 00:00"


def test_a_repeated_time_fires_once_also_if_the_search_begins_in_the_repeated_hour() -> None:
    daily = Clockwork("30 2 * * *", BERLIN)
    first = ms("2026-10-25T00:30:00Z")
    assert daily.next(first) == ms("2026-10-26T01:30:00Z")
    assert daily.next(first + 45 * MINUTE_MS) == ms("2026-10-26T01:30:00Z")  # 02:15 for the second time


def test_every_hour_in_spring() -> None:
    assert shown(Clockwork("30 * * * *", BERLIN), "2026-03-29T00:00:00Z", 3) == [
        *("29 00:30:00", "29 01:30:00", "29 02:30:00")
    ]


FIELDS = [
    st.sampled_from(["*", "0", "30", "*/7", "15,45"]),
    st.sampled_from(["*", "0", "1", "2", "2,3", "1-3", "*/2", "23"]),
    st.sampled_from(["*", "1", "28-31", "L"]),
    st.sampled_from(["*", "3,10", "4-9"]),
    st.sampled_from(["*", "sun", "mon-fri", "5L"]),
]
ZONES = ["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Beirut", "America/Havana", "Asia/Kathmandu"]
TIMES = st.integers(ms("2025-01-01T00:00:00Z"), ms("2030-01-01T00:00:00Z"))
CLOCKWORKS = st.builds(Clockwork, st.tuples(*FIELDS).map(" ".join), st.sampled_from(ZONES))


@given(clockwork=CLOCKWORKS, after_ms=TIMES)
def test_occurrences_strictly_increase(clockwork: Clockwork, after_ms: int) -> None:
    last_ms = after_ms
    for at_ms in islice(clockwork.after(after_ms), 20):
        assert at_ms > last_ms
        assert clockwork.next(last_ms) == at_ms
        last_ms = at_ms


@given(clockwork=CLOCKWORKS, after_ms=TIMES, days=st.integers(0, 40), most=st.sampled_from([1, 3]))
def test_the_last_occurrences_are_in_the_period(clockwork: Clockwork, after_ms: int, days: int, most: int) -> None:
    until_ms = after_ms + days * DAY_MS
    found = clockwork.last(after_ms, until_ms, most)
    assert found == sorted(set(found))
    assert all(after_ms < at_ms <= until_ms for at_ms in found)
    first_ms = clockwork.next(after_ms)
    assert bool(found) == (first_ms is not None and first_ms <= until_ms)
    if found:
        following_ms = clockwork.next(found[-1])
        assert following_ms is None or following_ms > until_ms


NINE = ms("2026-11-20T09:00:00+01:00")
DAILY = ScheduleRecord("0 9 * * *", BERLIN, after_ms=NINE - 3 * DAY_MS)
THREE = [NINE - 2 * DAY_MS, NINE - DAY_MS, NINE]


@pytest.mark.parametrize(
    ("missed", "late_ms", "fires"),
    [
        ("run", 0, [NINE - DAY_MS, NINE]),
        ("run", DAY_MS - 1, [NINE]),
        ("all", DAY_MS - 1, THREE),
        ("skip", MISSED_AFTER_MS, [NINE]),
        ("skip", MISSED_AFTER_MS + 1, []),
    ],
)
def test_missed_occurrences(missed: Missed, late_ms: int, fires: list[int]) -> None:
    found = due(DAILY, missed, NINE + late_ms)
    assert found == Due(fires, NINE)
    after = DAILY.advanced(found)
    assert (after.after_ms, after.last_ms) == (NINE, NINE if fires else None)
    assert due(after, missed, NINE + late_ms) is None


@pytest.mark.parametrize(("missed", "past"), [("run", [61]), ("all", range(99, 60, -1)), ("skip", [])])
def test_what_is_late_by_less_than_a_minute_is_not_missed(missed: Missed, past: Iterable[int]) -> None:
    every_second = ScheduleRecord("* * * * * *", "UTC", after_ms=NINE - DAY_MS)
    found = due(every_second, missed, NINE)
    assert found == Due([NINE - 1000 * late_s for late_s in (*past, *range(60, -1, -1))], NINE)
    short_stop = ScheduleRecord("*/3 * * * * *", "UTC", after_ms=NINE - 10_000)
    assert due(short_stop, missed, NINE) == Due([NINE - 9_000, NINE - 6_000, NINE - 3_000, NINE], NINE)


def test_nothing_is_due_before_its_time() -> None:
    before = ScheduleRecord(DAILY.cron, BERLIN, after_ms=NINE - DAY_MS)
    assert due(before, "all", NINE - 1) is None
    # Nor if Redis' clock was set back.
    assert due(before, "all", NINE - 2 * DAY_MS) is None


def test_catching_up_is_bounded() -> None:
    every_second = ScheduleRecord("* * * * * *", "UTC", after_ms=NINE - 30 * DAY_MS)
    found = due(every_second, "all", NINE)
    assert found is not None
    assert found.fires == [NINE - 1000 * n for n in reversed(range(MOST_AT_ONCE))]


def test_a_record_is_read_back() -> None:
    record = ScheduleRecord("0 9 * * *", BERLIN, NINE, None)
    assert ScheduleRecord.decode(record.encode()) == record
