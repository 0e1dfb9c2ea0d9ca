"""Receives Celery's task events from the workers.

Reconnects after an outage of Redis. Events that a worker had not sent when it was killed are missing; lane_watch.py
reads the state of those updates from Redis.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from chatlanes.sandbox.page.tracking.progress import STOPPED, UpdateProgress

#: The pause before the next attempt if Redis does not answer.
AGAIN_AFTER_S = 1.0
STATES = {
    "task-received": "waiting",
    "task-started": "running",
    "task-succeeded": "done",
    "task-retried": "delayed",
    "task-failed": "buried",
    "task-rejected": "waiting",
}

#: Between the parts of a traceback.
LINK = "\n\nThe above exception was the direct cause of the following exception:\n\n"
RETRY = "celery.exceptions.Retry"
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
        if event.get("type") in STATES:
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
        progress.state, progress.attempt = STATES[kind], attempt
        progress.worker, progress.run_s = worker, at_s if kind == "task-started" else None
    has_failed = kind == "task-failed" or (kind == "task-retried" and not exception.startswith(PUT_OFF))
    return attempt if has_failed else None


def _fail(progress: UpdateProgress, event: Event, at_s: float) -> None:
    progress.ended_s = at_s
    progress.traceback = of_the_bot(str(event.get("traceback") or ""))
    lines = progress.traceback.splitlines()
    progress.error = lines[-1] if lines else str(event.get("exception", ""))
    ending = "buried" if event["type"] == "task-failed" else "retried"
    progress.add_step(at_s, "failed", f"failed, and is {ending}: {progress.error}")


def of_the_bot(traceback: str) -> str:
    """The traceback without its last part if that is only Celery's Retry."""
    before, link, after = traceback.strip().rpartition(LINK)
    return before.strip() if link and after.splitlines()[-1].startswith(RETRY) else traceback.strip()
