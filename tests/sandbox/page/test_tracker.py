"""The state of an update from complete, partial or missing events of the workers."""

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


class Events:
    """An UpdateTracker with one update, 5, and its reported failures."""

    def __init__(self, storage: PageStorage) -> None:
        self.failures: list[str | None] = []
        self.tracker = UpdateTracker(
            storage, BOT, lambda progress: None, lambda progress: self.failures.append(progress.error)
        )
        self.tracker.begin(UpdateProgress(5, telegram_s=100.0, chat_id=CHAT))

    @property
    def progress(self) -> UpdateProgress:
        return self.tracker.progress_table[5]

    def hear(self, kind: str, at_s: float, **more: Any) -> None:
        event = {"type": f"task-{kind}", "uuid": "1:5", "timestamp": at_s, "hostname": "worker1@here", **more}
        self.tracker.receive(event)

    def see(self, state: str | None, at_s: float, **more: Any) -> None:
        """A look into Redis; None: it is not there."""
        named = {"queue": "updates.0", "lanes": ("1/chat:101",), "appended_us": 100_500_000, "moved_us": 0}
        fields = {**named, "holder": "", "failed": 0, "died": 0, "parked": "", "is_replayed": False, **more}
        records = {"1:5": Record(id="1:5", state=state, **fields)} if state else {}
        reasons = {"1:5": {"type": "Buried", "message": "died"}} if state == "buried" else {}
        asked = self.tracker.asks()
        self.tracker.see(LaneSnapshot(at_s, records, asked, reasons, 0, 0, 0, 0, 0, 0.0), first_waiting=6)


@pytest.fixture
def events(tmp_path: Path) -> Events:
    return Events(PageStorage(tmp_path / "page.sqlite3"))


def test_a_failure_and_a_second_attempt_from_events(events: Events) -> None:
    events.hear("started", 102.0)
    assert (events.progress.state, events.progress.attempt, events.progress.waited_s) == ("running", 1, 2.0)
    events.hear("retried", 103.0, traceback=RETRIED)
    assert (events.progress.state, events.progress.error, events.progress.traceback) == (
        "delayed",
        "ValueError: no",
        TRACEBACK,
    )
    events.hear("started", 104.0)
    events.hear("succeeded", 105.0, runtime=0.5)
    assert (events.progress.state, events.progress.attempt, events.progress.took_s, events.progress.error) == (
        "done",
        2,
        0.5,
        None,
    )
    assert events.failures == ["ValueError: no"]
    assert not events.tracker.asks()


def test_a_parked_update_has_not_failed(events: Events) -> None:
    events.hear("started", 102.0)
    events.hear("retried", 103.0, exception="FloodWait('the bot')", traceback=RETRIED)
    assert (events.progress.state, events.progress.error, events.failures) == ("delayed", "FloodWait('the bot')", [])
    events.hear("started", 104.0)
    assert events.progress.attempt == 1


def test_state_of_a_killed_workers_update_is_read_from_redis(events: Events) -> None:
    events.see("leased", 101.0)
    assert (events.progress.state, events.progress.attempt, events.progress.appended_s) == ("running", 1, 100.5)
    events.see("ready", 110.0, died=1)
    assert (events.progress.state, events.progress.error) == ("waiting", "its process died while it ran")
    events.hear("started", 111.0)
    events.see(None, 112.0)
    assert events.progress.state == "running"  # its worker may be about to tell
    events.see(None, 112.0 + FORGOTTEN_FOR_S)
    assert (events.progress.state, events.progress.ended_s) == ("done", None)


def test_the_reason_of_a_burial_needs_no_event(events: Events) -> None:
    events.see("buried", 120.0, died=3)
    assert (events.progress.state, events.progress.error, events.failures) == (
        "buried",
        "Buried: died",
        ["Buried: died"],
    )
    events.tracker.replayed(5)
    assert (events.progress.state, events.progress.attempt) == ("waiting", 0)


def test_in_a_flood_only_updates_that_never_ran_are_lost(events: Events) -> None:
    for update_id in (7, 8):
        events.tracker.begin(UpdateProgress(update_id, telegram_s=100.0))
        events.tracker.audit.give(update_id, ["chat:7"], is_flood=True)
    events.tracker.audit.called(7, "sendMessage", {})
    snapshot = LaneSnapshot(110.0, {}, events.tracker.asks(), {}, 0, 0, 0, 0, 0, 0.0)
    events.tracker.see(snapshot, first_waiting=9)
    assert events.tracker.audit.lost == 0
    events.tracker.see(LaneSnapshot(120.0, {}, events.tracker.asks(), {}, 0, 0, 0, 0, 0, 0.0), first_waiting=9)
    assert events.tracker.audit.lost == 1
