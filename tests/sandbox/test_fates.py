"""What the page knows of an update when workers tell all of it, a part, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chatlanes.lanes.monitoring.inspection import Record
from chatlanes.sandbox.page.storage import PageStorage
from chatlanes.sandbox.page.tracking.lane_watch import LaneSnapshot
from chatlanes.sandbox.page.tracking.progress import UpdateProgress
from chatlanes.sandbox.page.tracking.tracker import FORGOTTEN_FOR_S, UpdateTracker

CHAT, BOT = 101, 1
TRACEBACK = "Traceback …\nValueError: no"
RETRIED = (
    f"{TRACEBACK}\n\nThe above exception was the direct cause of the following exception:\n\n"
    "Traceback …\ncelery.exceptions.Retry: Retry in 1.0s: ValueError('no')\n"
)


class Told:
    """UpdateTracker of one update, 5, and what it was told."""

    def __init__(self, kept: PageStorage) -> None:
        self.failures: list[str | None] = []
        self.fates = UpdateTracker(kept, BOT, lambda life: None, lambda life: self.failures.append(life.error))
        self.fates.begin(UpdateProgress(5, telegram_s=100.0, chat_id=CHAT))

    @property
    def life(self) -> UpdateProgress:
        return self.fates.lives[5]

    def hear(self, kind: str, at_s: float, **more: Any) -> None:
        event = {"type": f"task-{kind}", "uuid": "1:5", "timestamp": at_s, "hostname": "worker1@here", **more}
        self.fates.hear(event)

    def see(self, state: str | None, at_s: float, **more: Any) -> None:
        """A look into Redis; None: it is not there."""
        named = {"queue": "updates.0", "lanes": ("1/chat:101",), "appended_us": 100_500_000, "moved_us": 0}
        fields = {**named, "holder": "", "failed": 0, "died": 0, "parked": "", "is_replayed": False, **more}
        records = {"1:5": Record(id="1:5", state=state, **fields)} if state else {}
        reasons = {"1:5": {"type": "Buried", "message": "died"}} if state == "buried" else {}
        asked = self.fates.asks()
        self.fates.see(LaneSnapshot(at_s, records, asked, reasons, 0, 0, 0, 0, 0, 0.0), first_waiting=6)


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(PageStorage(tmp_path / "page.sqlite3"))


def test_a_failure_and_a_second_attempt_as_the_worker_tells_them(told: Told) -> None:
    told.hear("started", 102.0)
    assert (told.life.state, told.life.attempt, told.life.waited_s) == ("running", 1, 2.0)
    told.hear("retried", 103.0, traceback=RETRIED)
    assert (told.life.state, told.life.error, told.life.traceback) == ("delayed", "ValueError: no", TRACEBACK)
    told.hear("started", 104.0)
    told.hear("succeeded", 105.0, runtime=0.5)
    assert (told.life.state, told.life.attempt, told.life.took_s, told.life.error) == ("done", 2, 0.5, None)
    assert told.failures == ["ValueError: no"]
    assert not told.fates.asks()


def test_an_update_that_was_put_off_has_not_failed(told: Told) -> None:
    told.hear("started", 102.0)
    told.hear("retried", 103.0, exception="FloodWait('the bot')", traceback=RETRIED)
    assert (told.life.state, told.life.error, told.failures) == ("delayed", "FloodWait('the bot')", [])
    told.hear("started", 104.0)
    assert told.life.attempt == 1


def test_what_a_killed_worker_could_not_tell_is_seen_in_redis(told: Told) -> None:
    told.see("leased", 101.0)
    assert (told.life.state, told.life.attempt, told.life.appended_s) == ("running", 1, 100.5)
    told.see("ready", 110.0, died=1)
    assert (told.life.state, told.life.error) == ("waiting", "its process died in the middle of it")
    told.hear("started", 111.0)
    told.see(None, 112.0)
    assert told.life.state == "running"  # its worker may be about to tell
    told.see(None, 112.0 + FORGOTTEN_FOR_S)
    assert (told.life.state, told.life.ended_s) == ("done", None)


def test_why_an_update_was_buried_is_known_without_a_word_of_its_worker(told: Told) -> None:
    told.see("buried", 120.0, died=3)
    assert (told.life.state, told.life.error, told.failures) == ("buried", "Buried: died", ["Buried: died"])
    told.fates.replayed(5)
    assert (told.life.state, told.life.attempt) == ("waiting", 0)


def test_of_a_flood_only_what_nobody_ran_is_lost(told: Told) -> None:
    for update_id in (7, 8):
        told.fates.begin(UpdateProgress(update_id, telegram_s=100.0))
        told.fates.ledger.give(update_id, ["chat:7"], is_flood=True)
    told.fates.ledger.called(7, "sendMessage", {})
    look = LaneSnapshot(110.0, {}, told.fates.asks(), {}, 0, 0, 0, 0, 0, 0.0)
    told.fates.see(look, first_waiting=9)
    assert told.fates.ledger.lost == 0
    told.fates.see(LaneSnapshot(120.0, {}, told.fates.asks(), {}, 0, 0, 0, 0, 0, 0.0), first_waiting=9)
    assert told.fates.ledger.lost == 1
