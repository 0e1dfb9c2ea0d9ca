"""lanes schedules, and what lanes check finds about them."""

from __future__ import annotations

import json

import pytest

from celery_lanes.protocol import Store
from chatlanes.bot.schedules import ScheduleRecord, owner_of
from tests.cli.conftest import Cli

HOUR_MS = 3_600_000


def ms(cli: Cli, hours: int = 0) -> int:
    return cli.store.schedules()[0] + hours * HOUR_MS


def put(cli: Cli, name: str, record: ScheduleRecord, bot_id: int = 7) -> None:
    assert cli.store.advance(owner_of(bot_id), name, known=b"", record=record.encode())


def test_schedules_are_listed(cli: Cli) -> None:
    # Given a schedule that has fired, one that has not, and a record of another owner
    put(cli, "weekly", ScheduleRecord("0 18 * * sun", "UTC", 1_800_000_000_000))
    put(cli, "digest", ScheduleRecord("0 9 * * mon-fri", "Europe/Berlin", 1_763_712_000_000, 1_763_712_000_000))
    cli.store.advance("another", "x", known=b"", record=b"x")
    # Then the list has both, with times in their zones
    assert cli.said("schedules") == [
        "bot  schedule  expression       zone           last                       next",
        "7    digest    0 9 * * mon-fri  Europe/Berlin  2025-11-21 09:00:00+01:00  2025-11-24 09:00:00+01:00",
        "7    weekly    0 18 * * sun     UTC            –                          2027-01-17 18:00:00+00:00",
    ]
    assert json.loads(cli.said("schedules", "--json")[0]) == {
        "bot": "7",
        "name": "digest",
        "cron": "0 9 * * mon-fri",
        "tz": "Europe/Berlin",
        "last_ms": 1_763_712_000_000,
        "next_ms": 1_763_971_200_000,
    }


def test_there_is_no_schedule(cli: Cli) -> None:
    assert cli.said("schedules") == ["no worker has recorded a schedule (SCHEDULES)"]
    assert cli.code == 0


def test_check_names_schedules_that_are_not_fired(cli: Cli) -> None:
    # Given a schedule that is fired, one that no worker has fired, and one that was fired by a clock that was fast
    put(cli, "good", ScheduleRecord("0 * * * *", "UTC", ms(cli)))
    put(cli, "late", ScheduleRecord("0 * * * *", "UTC", ms(cli, -3)))
    put(cli, "early", ScheduleRecord("0 * * * *", "UTC", ms(cli, 48)))
    # Then check names the last two
    late, early = sorted((line for line in cli.said("check") if "schedule" in line), reverse=True)
    assert late.startswith("WRONG schedule late: was due at 20")
    assert "and was not fired: start a worker of bot 7 with SCHEDULES, or" in late
    assert late.endswith("run `chatlanes lanes schedules remove late`")
    assert early.startswith("WRONG schedule early: is not fired before 20")


def test_a_schedule_that_no_worker_has_is_removed(cli: Cli) -> None:
    # Given the record of a schedule that is not in SCHEDULES any more, and others
    put(cli, "late", ScheduleRecord("0 * * * *", "UTC", ms(cli, -3)))
    put(cli, "late", ScheduleRecord("0 * * * *", "UTC", ms(cli, -3)), bot_id=8)
    put(cli, "good", ScheduleRecord("0 * * * *", "UTC", ms(cli)))
    assert cli.said("schedules", "remove", "late") == ["2 bots have a schedule late: add --bot"]
    assert cli.code == 1
    # When it is removed, Then check does not name it any more
    assert cli.said("schedules", "remove", "late", "--bot", "7") == ["removed schedule late"]
    assert cli.said("schedules", "remove", "late") == ["removed schedule late"]
    assert not [line for line in cli.said("check") if "schedule" in line]
    assert [line.split()[1] for line in cli.said("schedules", "list")[1:]] == ["good"]
    assert cli.said("schedules", "remove", "late") == ["there is no schedule late: lanes schedules shows all"]


def test_a_schedule_that_is_fired_at_the_moment_is_not_removed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    put(cli, "good", ScheduleRecord("0 * * * *", "UTC", ms(cli)))
    monkeypatch.setattr(Store, "advance", lambda *_, **__: False)
    [line] = cli.said("schedules", "remove", "good")
    assert line == "schedule good was fired at this moment, so a worker has it: end that worker first"
