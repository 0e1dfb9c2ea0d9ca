"""The state of an update from complete, partial or missing events of the workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from celery_lanes.monitoring.inspection import Record
from chatlanes_sandbox.page.lanes import LaneSnapshot
from chatlanes_sandbox.page.progress import UpdateProgress, timeline
from chatlanes_sandbox.page.storage import PageStorage
from chatlanes_sandbox.page.tracker import FORGOTTEN_FOR_S, UpdateTracker

CHAT, BOT = 101, 1
TRACEBACK = "Traceback …\nValueError: no"


class Events:
    """An UpdateTracker with one update, 5, and its reported failures."""

    def __init__(self, storage: PageStorage) -> None:
        self.failures: list[tuple[str | None, int]] = []
        self.tracker = UpdateTracker(
            storage, BOT, lambda progress: None, lambda progress, at: self.failures.append((progress.error, at))
        )
        self.tracker.begin(UpdateProgress(5, telegram_s=100.0, chat_id=CHAT))

    @property
    def progress(self) -> UpdateProgress:
        return self.tracker.progress_table[5]

    def hear(self, kind: str, at_s: float, **more: Any) -> None:
        event = {"type": f"task-{kind}", "uuid": "1:5", "timestamp": at_s, "hostname": "worker1@here", **more}
        self.tracker.receive(event)

    @property
    def steps(self) -> list[str]:
        return [step["text"] for step in self.progress.steps]

    def see(self, state: str | None, at_s: float, groups: Sequence[list[int]] = (), **more: Any) -> None:
        """A look into Redis; None: it is not there."""
        named = {"queue": "updates.0", "lanes": ("1/chat:101",), "appended_us": 100_500_000, "moved_us": 0}
        fields = {**named, "holder": "", "failed": 0, "died": 0, "parked": "", "is_replayed": False, **more}
        records = {"1:5": Record(id="1:5", state=state, **fields)} if state else {}
        reasons = {"1:5": {"type": "Buried", "message": "died"}} if state == "buried" else {}
        asked = self.tracker.asks()
        snapshot = LaneSnapshot(at_s, records, asked, reasons, 0, 0, 0, 0, 0, 0.0, groups=groups)
        self.tracker.see(snapshot, first_waiting=9)


@pytest.fixture
def events(tmp_path: Path) -> Events:
    return Events(PageStorage(tmp_path / "page.sqlite3"))


def test_a_failure_and_a_second_attempt_from_events(events: Events) -> None:
    events.hear("started", 102.0)
    assert (events.progress.state, events.progress.attempt, events.progress.waited_s) == ("running", 1, 2.0)
    events.hear("retried", 103.0, traceback=TRACEBACK)
    assert (events.progress.state, events.progress.error, events.progress.traceback) == (
        "delayed",
        "ValueError: no",
        TRACEBACK,
    )
    events.hear("started", 104.0, attempt=2)
    events.hear("succeeded", 105.0, runtime=0.5, attempt=2)
    assert (events.progress.state, events.progress.attempt, events.progress.took_s, events.progress.error) == (
        "done",
        2,
        0.5,
        None,
    )
    assert events.failures == [("ValueError: no", 1)]
    assert events.steps == [
        "started on worker1",
        "failed, and is retried: ValueError: no",
        "started on worker1, attempt 2",
        "done",
    ]
    assert not events.tracker.asks()


def test_a_failure_is_reported_with_its_own_attempt(events: Events) -> None:
    # Given an update whose next attempt is seen in Redis before the event of its failure has arrived
    events.hear("started", 102.0, attempt=1)
    events.see("leased", 103.0, failed=1)
    events.hear("retried", 102.9, attempt=1, traceback=TRACEBACK)
    # Then the failure is that of the first attempt, and the second one runs
    assert events.failures == [("ValueError: no", 1)]
    assert (events.progress.state, events.progress.attempt) == ("running", 2)
    # And a start that is not an attempt is none: the worker has given it back
    events.hear("rejected", 104.0, attempt=2)
    events.hear("started", 105.0, attempt=2)
    events.hear("failed", 106.0, attempt=2, traceback=TRACEBACK)
    assert events.failures[1:] == [("ValueError: no", 2)]


def test_a_stopped_run_has_not_failed(events: Events) -> None:
    events.hear("started", 102.0, attempt=1)
    events.see("waiting", 102.5)
    events.hear("retried", 102.6, attempt=1, exception="Interrupted('a newer update has ended')")
    assert (events.progress.state, events.progress.is_stopped, events.progress.error) == ("waiting", True, None)
    events.hear("started", 103.0, attempt=1)
    assert (events.progress.state, events.progress.is_stopped) == ("running", False)
    # When the next run has ended before the event of the stopped one arrives, then it stays done
    events.hear("succeeded", 103.5, attempt=1)
    events.hear("retried", 103.6, attempt=1, exception="Interrupted('a newer update has ended')")
    assert (events.progress.state, events.failures) == ("done", [])


def test_collected_updates_are_one_run(events: Events) -> None:
    for update_id in (6, 7):
        events.tracker.begin(UpdateProgress(update_id, telegram_s=101.0, chat_id=CHAT))
    events.see("waiting", 101.5, groups=[[5, 6]])
    events.see("waiting", 101.9, groups=[[5, 6, 7]])
    events.hear("started", 102.0, attempt=1)
    # Then all have the progress of the run, however long it takes, and only the first one is asked for
    events.see("leased", 103.0 + FORGOTTEN_FOR_S, groups=[[5, 6, 7]])
    table = events.tracker.progress_table
    assert [table.run_of(update_id) for update_id in (5, 6, 7)] == [events.progress] * 3
    assert (events.progress.state, events.tracker.asks()) == ("running", {"1:5"})
    events.hear("succeeded", 110.0, attempt=1)
    assert not events.tracker.asks()


def test_the_timeline_has_deaths_and_the_calls_that_a_run_skipped(events: Events) -> None:
    call = {"params": {}, "answer": {}, "status": 200}
    # Given an update that sent two messages, whose process died, and which then sent a third
    events.hear("started", 102.0, attempt=1)
    calls = [{**call, "at_s": 102.0 + place / 10, "method": f"send{place}", "place": f"{place}"} for place in (1, 2)]
    events.see("leased", 103.0, died=1)
    events.hear("started", 104.0, attempt=2)
    calls.append({**call, "at_s": 104.5, "method": "send3", "place": "3"})
    events.hear("succeeded", 105.0, attempt=2)
    # Then all of that is shown in its order, also the death that was seen only in Redis
    assert [step["text"] for step in timeline(events.progress, 100.0, calls)] == [
        "sent by a user",
        "appended to its lane",
        "started on worker1",
        "send1",
        "send2",
        "its worker died",
        "started on worker1, attempt 2",
        "send1 skipped: an earlier run has made it",
        "send2 skipped: an earlier run has made it",
        "send3",
        "done",
    ]


def test_a_parked_update_has_not_failed(events: Events) -> None:
    events.hear("started", 102.0)
    events.hear("retried", 103.0, exception="FloodWait('the bot')", traceback=TRACEBACK)
    assert (events.progress.state, events.progress.error, events.failures) == ("delayed", "FloodWait('the bot')", [])
    events.hear("started", 104.0, attempt=1)
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
        [("Buried: died", 3)],
    )
    assert events.steps == ["its worker died"] * 3
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
