"""The progress of each update: waiting, running, done, delayed, buried; and the steps that led there.

The workers report them as Celery's task events, which are received again after an outage of Redis. Events that a worker
had not sent when it was killed are missing; lanes.py reads the state of those updates from Redis.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

#: The updates that are remembered, including streamed ones.
MOST = 20_000
#: Of one update, the last ones.
MOST_STEPS = 100
#: The state of an update that belongs to the run of an earlier one.
COLLECTED = "collected"
STOPPED = "stopped"
#: Steps before these do not belong to the current journal.
_NEW_BEGINNINGS = (STOPPED, "replayed")

Step = dict[str, Any]


@dataclass
class UpdateProgress:
    """Times are Unix seconds."""

    update_id: int
    telegram_s: float
    #: 0: it belongs to no chat of the page, such as a streamed one.
    chat_id: int = 0
    state: str = "waiting"
    #: The current attempt, or the last one.
    attempt: int = 0
    appended_s: float | None = None
    started_s: float | None = None
    ended_s: float | None = None
    took_s: float | None = None
    #: The start of the current run.
    run_s: float | None = None
    worker: str | None = None
    error: str | None = None
    traceback: str | None = None
    #: {at_s, what, text}
    steps: list[Step] = field(default_factory=list)
    #: All updates of its run, if it was collected with others: `group[0]` has the progress of the run.
    group: list[int] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """True unless it is replayed."""
        return self.state in ("done", "buried", COLLECTED)

    @property
    def is_stopped(self) -> bool:
        """A newer message has stopped its run, and the next one has not begun."""
        return self.state == "waiting" and bool(self.steps) and self.steps[-1]["what"] == STOPPED

    def add_step(self, at_s: float, what: str, text: str) -> None:
        self.steps = [*self.steps, {"at_s": at_s, "what": what, "text": text}][-MOST_STEPS:]

    def add_deaths(self, died: int, at_s: float) -> None:
        """Its process has died this often since it was appended or replayed."""
        for _ in range(died - self.counted("died")):
            self.add_step(at_s, "died", "its worker died")

    def counted(self, *what: str) -> int:
        """How many steps of these kinds there were since it was appended or replayed."""
        known = [step["what"] for step in self.steps]
        began = max((place for place, each in enumerate(known) if each == "replayed"), default=0)
        return sum(each in what for each in known[began:])

    @property
    def waited_s(self) -> float | None:
        """The time until its handler started first."""
        return None if self.started_s is None else round(max(0.0, self.started_s - self.telegram_s), 3)


class ProgressTable(OrderedDict[int, UpdateProgress]):
    """By update id."""

    def add(self, progress: UpdateProgress) -> UpdateProgress:
        self[progress.update_id] = progress
        while len(self) > MOST:
            self.popitem(last=False)
        return progress

    def run_of(self, update_id: int) -> UpdateProgress | None:
        """The progress of the run that the update belongs to."""
        found = self.get(update_id)
        return self.get(found.group[0]) if found and found.group else found


def timeline(progress: UpdateProgress, telegram_s: float, calls: Sequence[dict[str, Any]]) -> list[Step]:
    """Everything that happened to an update, in the order of time; `calls` are those of the bot."""
    steps: list[Step] = [{"at_s": telegram_s, "what": "sent", "text": "sent by a user"}]
    if progress.appended_s is not None:
        steps.append({"at_s": max(telegram_s, progress.appended_s), "what": "appended", "text": "appended to its lane"})
    steps += progress.steps
    steps += [
        {"at_s": call["at_s"], "what": "call" if call["status"] < 400 else "refused", "text": _call_text(call)}
        for call in calls
    ]
    steps += _skipped(progress.steps, calls)
    return sorted(steps, key=lambda step: float(step["at_s"]))


def _call_text(call: dict[str, Any]) -> str:
    again = " again: its outcome was unknown" if call.get("place", "").endswith(" again") else ""
    refused = "" if call["status"] < 400 else f", refused: {call['answer']}"
    return f"{call['method']}{again}{refused}"


def _skipped(steps: Sequence[Step], calls: Sequence[dict[str, Any]]) -> list[Step]:
    """For each run after the first, the calls that it did not make again. Known of a run that has ended well, and of
    calls before one that it made.
    """
    found: list[Step] = []
    since_s = 0.0  # of the current journal
    places: list[tuple[float, int, str]] = [
        (call["at_s"], int(place), call["method"])
        for call in calls
        if (place := call.get("place", "").partition(" ")[0]).isdecimal()
    ]
    for number, step in enumerate(steps):
        if step["what"] in _NEW_BEGINNINGS:
            since_s = step["at_s"]
        if step["what"] != "started":
            continue
        begin_s = step["at_s"]
        following = steps[number + 1 :]
        end_s = next((each["at_s"] for each in following if each["what"] == "started"), float("inf"))
        made = {place for at_s, place, _ in places if begin_s <= at_s < end_s}
        ended_well = any(each["what"] == "done" and each["at_s"] <= end_s for each in following)
        behind = float("inf") if ended_well else max(made, default=0)
        found += [
            {"at_s": begin_s, "what": "skipped", "text": f"{method} skipped: an earlier run has made it"}
            for place, method in {place: method for at_s, place, method in places if since_s <= at_s < begin_s}.items()
            if place not in made and place < behind
        ]
    return found


# ── events of the workers ──

#: The pause before the next attempt if Redis does not answer.
AGAIN_AFTER_S = 1.0
STATES_AFTER = {
    "task-received": "waiting",
    "task-started": "running",
    "task-succeeded": "done",
    "task-retried": "delayed",
    "task-failed": "buried",
    "task-rejected": "waiting",
}

#: Not failures: these updates are parked (chatlanes/tasks/settlement.py).
PUT_OFF = ("FloodWait(", "UnknownBotError(")
#: Not a failure: a newer update has ended the run, and is part of the next one.
INTERRUPTED = "Interrupted("

Event = dict[str, Any]


def start_receiving(hear: Callable[[Event], None]) -> None:
    """Receive in a thread of its own; `hear` is called on the event loop of the caller."""
    loop = asyncio.get_running_loop()
    threading.Thread(target=_listen, args=(loop, hear), daemon=True, name="listening").start()


def _listen(loop: asyncio.AbstractEventLoop, hear: Callable[[Event], None]) -> None:
    from chatlanes.tasks.app import app  # slow: the page must not wait for it

    def heard(event: Event) -> None:
        if event.get("type") in STATES_AFTER:
            loop.call_soon_threadsafe(hear, event)

    while True:
        try:
            with app.connection_for_read() as connection:
                app.events.Receiver(connection, handlers={"*": heard}).capture(limit=None, timeout=None)
        except Exception:
            time.sleep(AGAIN_AFTER_S)


def update_id_of(event: Event, bot_id: int) -> int | None:
    """None if the event is not about an update of this bot."""
    bot, _, number = str(event.get("uuid", "")).partition(":")
    return int(number) if bot == str(bot_id) and number.isdecimal() else None


def apply_event(progress: UpdateProgress, event: Event) -> int | None:
    """Record the event. Returns the number of the attempt if the bot has failed."""
    kind, at_s = event["type"], float(event["timestamp"])
    worker = str(event.get("hostname", "")).partition("@")[0]
    attempt = int(event.get("attempt") or progress.attempt or 1)
    exception = str(event.get("exception", ""))
    match kind:
        case "task-received":
            progress.add_step(at_s, "handed", f"handed out to {worker}")
            return None
        case "task-retried" if exception.startswith(INTERRUPTED):
            # The next run may have begun or even ended: its state is that of the lane.
            progress.add_step(at_s, STOPPED, f"stopped by a newer message on {worker}")
            return None
        case "task-started":
            progress.add_step(at_s, "started", f"started on {worker}" + (f", attempt {attempt}" if attempt > 1 else ""))
            progress.started_s = progress.started_s or at_s
            progress.ended_s = progress.took_s = None
        case "task-succeeded":
            progress.add_deaths(attempt - 1 - progress.counted("failed"), at_s)
            progress.ended_s, progress.took_s = at_s, round(float(event.get("runtime") or 0.0), 3)
            progress.error = progress.traceback = None
            progress.add_step(at_s, "done", "done")
        case "task-rejected":
            progress.add_step(at_s, "given back", f"given back by {worker}; no attempt is counted")
        case "task-retried" if exception.startswith(PUT_OFF):
            progress.ended_s, progress.error = at_s, exception
            progress.add_step(at_s, "put off", f"put off: {exception}")
        case "task-retried" | "task-failed":
            _fail(progress, event, at_s)
    if attempt >= progress.attempt:  # otherwise a later attempt has begun
        progress.state, progress.attempt = STATES_AFTER[kind], attempt
        progress.worker, progress.run_s = worker, at_s if kind == "task-started" else None
    has_failed = kind == "task-failed" or (kind == "task-retried" and not exception.startswith(PUT_OFF))
    return attempt if has_failed else None


def _fail(progress: UpdateProgress, event: Event, at_s: float) -> None:
    progress.ended_s = at_s
    progress.traceback = str(event.get("traceback") or "").strip()
    lines = progress.traceback.splitlines()
    progress.error = lines[-1] if lines else str(event.get("exception", ""))
    ending = "buried" if event["type"] == "task-failed" else "retried"
    progress.add_step(at_s, "failed", f"failed, and is {ending}: {progress.error}")
