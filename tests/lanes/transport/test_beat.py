"""celery beat on lane queues: two beats publish each firing once, also when they are killed and start again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from celery.schedules import BaseSchedule, crontab, schedule

import celery_lanes as lanes
from celery_lanes.protocol import keys
from celery_lanes.transport.beat import firing
from tests.support.lab import Lab, LabMaker
from tests.support.lab_app import LANE_QUEUES
from tests.support.process import Process
from tests.support.waiting import until
from tests.support.worker import CELERY, environment

NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


def entry(**options: Any) -> dict[str, Any]:
    return {"task": "run", "schedule": 1.0, "options": {"queue": LANE_QUEUES[0], **options}}


class Beats:
    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.running: list[Process] = []

    def start(self, name: str) -> Process:
        folder = self.lab.directory / f"{name}{len(self.running)}"
        folder.mkdir()
        command = [*CELERY, "beat", "-l", "INFO", "--pidfile=", "-s", str(self.lab.directory / name)]
        process = Process(name, command, folder, environment(self.lab.settings, {}))
        self.running.append(process)
        process.tells("Sending due task")
        return process

    def sent(self) -> int:
        return sum(each.log.count("Sending due task") for each in self.running)


ENTRIES = {
    "keys": entry(headers=lanes.headers(["reports"])),
    "lane": {"task": "keyed", "schedule": 1.0, "args": ["reports", "daily"]},
}


@pytest.fixture(params=ENTRIES)
def beats(make_lab: LabMaker, request: pytest.FixtureRequest) -> Iterator[Beats]:
    started = Beats(make_lab(beat_schedule={"each second": ENTRIES[request.param]}))
    yield started
    for process in started.running:
        process.end()


def test_two_beats_publish_each_firing_once(beats: Beats) -> None:
    lab = beats.lab
    began_s = int(lab.client.time()[0])
    first = beats.start("first")
    beats.start("second")
    until(lambda: lab.count("seen") >= 2)
    # One is killed, and starts again
    first.kill_all()
    published = lab.count("appended")
    until(lambda: lab.count("appended") >= published + 2)
    beats.start("first")
    seen = lab.count("seen")
    until(lambda: lab.count("seen") >= seen + 2)
    for process in beats.running:
        if process.is_running():
            process.kill_all()
    # Then there is at most one message for each second, and the others were dropped
    assert lab.count("appended") <= int(lab.client.time()[0]) - began_s + 1
    assert beats.sent() >= lab.count("appended") + 4
    assert lab.client.exists(keys.lane("reports"))


def test_an_entry_without_keys_is_refused_and_the_others_are_published(make_lab: LabMaker) -> None:
    schedules = {"no keys": entry(), "keys": entry(headers=lanes.headers(["reports"]), countdown=0.1)}
    lab = make_lab(beat_schedule=schedules)
    lab.worker("prefork", 1)
    process = Beats(lab).start("only")
    try:
        process.tells("'orders.0' is a lane queue: give the task a lane (@app.task(lane=…)), or pass the keys")
        until(lambda: lab.count("fired") >= 2 and lab.count("settled") >= 2)
    finally:
        process.end()


def number(of: Any, last_run_at: datetime, now: datetime) -> int | None:
    return firing(SimpleNamespace(schedule=of, last_run_at=last_run_at), SimpleNamespace(schedule=of, last_run_at=now))


def at_noon(**when: Any) -> crontab:
    made = crontab(hour=12, minute=0, **when)
    made.nowfun = lambda: NOON
    return made


@pytest.mark.parametrize("late", [timedelta(), timedelta(seconds=59), timedelta(hours=3), timedelta(hours=23)])
@pytest.mark.parametrize("before", [timedelta(hours=24), timedelta(minutes=1), timedelta(days=9)])
def test_a_late_beat_fires_for_the_same_minute(late: timedelta, before: timedelta) -> None:
    assert number(at_noon(), NOON - before, NOON + late) == NOON.timestamp() // 60


def test_a_rare_crontab_that_is_late() -> None:
    late = NOON + timedelta(days=20)
    assert number(at_noon(day_of_month=4), NOON - timedelta(days=40), late) == NOON.timestamp() // 60


def test_an_interval_is_counted_since_1970() -> None:
    every = schedule(timedelta(seconds=10))
    last = NOON - timedelta(seconds=10)
    assert number(every, last, NOON) == NOON.timestamp() / 10
    assert number(every, last, NOON + timedelta(seconds=9.9)) == NOON.timestamp() / 10


def test_other_schedules_have_no_number() -> None:
    assert number(BaseSchedule(), NOON, NOON) is None
