"""A list of schedules that cannot run is refused with one sentence."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from chatlanes.bot.bot import Bot
from chatlanes.bot.context import Context
from chatlanes.bot.loader import load_schedules
from chatlanes.bot.schedule import Schedule, ScheduleError
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
    with pytest.raises(ScheduleError) as caught:
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
