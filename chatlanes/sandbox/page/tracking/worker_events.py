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

from chatlanes.sandbox.page.tracking.progress import UpdateProgress

#: The pause before the next attempt if Redis does not answer.
AGAIN_AFTER_S = 1.0
STATES = {
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


def apply_event(progress: UpdateProgress, event: Event) -> bool:
    """Record the event. Returns True if the bot has failed."""
    kind, at_s = event["type"], float(event["timestamp"])
    progress.state = STATES[kind]
    progress.worker = str(event.get("hostname", "")).partition("@")[0]
    progress.run_s = at_s if kind == "task-started" else None
    match kind:
        case "task-started":
            progress.starts += 1
            progress.attempt = max(progress.attempt, progress.starts)
            progress.started_s = progress.started_s or at_s
            progress.ended_s = progress.took_s = None
        case "task-succeeded":
            progress.ended_s, progress.took_s = at_s, round(float(event.get("runtime") or 0.0), 3)
            progress.error = progress.traceback = None
        case "task-retried" if str(event.get("exception", "")).startswith(PUT_OFF):
            progress.ended_s, progress.error = at_s, str(event["exception"])
            progress.starts -= 1
        case "task-retried" | "task-failed":
            progress.ended_s = at_s
            progress.traceback = of_the_bot(str(event.get("traceback") or ""))
            lines = progress.traceback.splitlines()
            progress.error = lines[-1] if lines else str(event.get("exception", ""))
            return True
    return False


def of_the_bot(traceback: str) -> str:
    """The traceback without its last part if that is only Celery's Retry."""
    before, link, after = traceback.strip().rpartition(LINK)
    return before.strip() if link and after.splitlines()[-1].startswith(RETRY) else traceback.strip()
