"""The progress of every update, from worker events, Redis and the bot's calls.

An update whose worker was killed before it reported the end is known to be over soon after Redis has forgotten it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any

from celery_lanes.monitoring.inspection import Record
from chatlanes_sandbox.page.lanes import LaneSnapshot, number_of_update
from chatlanes_sandbox.page.order_audit import OrderAudit
from chatlanes_sandbox.page.progress import COLLECTED, Event, ProgressTable, UpdateProgress, apply_event, update_id_of
from chatlanes_sandbox.page.storage import PageStorage

#: An update that Redis does not have any more is over, but the event of its worker may still arrive.
FORGOTTEN_FOR_S = 5.0
#: The largest difference between the clocks of a worker and of Redis.
CLOCKS_S = 0.1
#: Updates looked up in one read.
MOST_ASKED = 1_000
STATES = {"leased": "running", "delayed": "delayed", "buried": "buried"}
_FIELDS = frozenset(field.name for field in fields(UpdateProgress))


class UpdateTracker:
    """`changed` is called with each progress in the page's chats, `failed` with each failure of the bot and the number
    of its attempt.
    """

    def __init__(
        self,
        storage: PageStorage,
        bot_id: int,
        changed: Callable[[UpdateProgress], None],
        failed: Callable[[UpdateProgress, int], None],
        audit: OrderAudit | None = None,
    ) -> None:
        self._storage = storage
        self._bot_id = bot_id
        self._changed = changed
        self._failed = failed
        self.audit = audit or OrderAudit()
        self.progress_table = ProgressTable()
        for progress in storage.progress_table():
            known = {name: value for name, value in progress.items() if name in _FIELDS}
            self.progress_table.add(UpdateProgress(**known))
        self._open = {progress.update_id for progress in self.progress_table.values() if not progress.is_over}
        self._forgotten_since_s: dict[int, float] = {}

    def begin(self, progress: UpdateProgress) -> None:
        """A new update."""
        self.progress_table.add(progress)
        if progress.chat_id:
            self._open.add(progress.update_id)
            self._storage.put_progress(progress.update_id, asdict(progress))

    def replayed(self, update_id: int) -> None:
        """It is in its lanes again, and its attempts are counted from zero."""
        progress = self.progress_table.get(update_id)
        if progress is not None:
            progress.state, progress.attempt = "waiting", 0
            progress.add_step(time.time(), "replayed", "replayed: at the end of its lanes again")
            self._go_on(progress)

    def confirmed(self, first: int, behind: int) -> None:
        """The poller has appended these."""
        for update_id in range(max(first, behind - MOST_ASKED), behind):
            progress = self.progress_table.get(update_id)
            if progress is not None and progress.appended_s is None:
                progress.appended_s = min(time.time(), progress.started_s or time.time())

    def receive(self, event: Event) -> None:
        """Receive an event of a worker."""
        update_id = update_id_of(event, self._bot_id)
        progress = None if update_id is None else self.progress_table.get(update_id)
        if progress is None:
            return
        failed_attempt = apply_event(progress, event)
        self._go_on(progress)
        if failed_attempt is not None:
            self._failed(progress, failed_attempt)

    def runs_since_s(self, snapshot: LaneSnapshot) -> dict[str, float]:
        """Message id -> when its handler started, of those that run now. A worker may have others, not yet started."""
        found = {}
        for record in snapshot.records.values():
            progress = self.progress_table.get(number_of_update(record.id) or 0)
            # A start before the last hand-out is that of a worker which died.
            if record.state == "leased" and progress and (progress.run_s or 0) >= record.moved_us / 1e6 - CLOCKS_S:
                found[record.id] = progress.run_s or 0.0
        return found

    def asks(self) -> frozenset[str]:
        """The messages whose outcome is not known."""
        wanted = sorted(self._open | self.audit.open)[:MOST_ASKED]
        return frozenset(f"{self._bot_id}:{update_id}" for update_id in wanted)

    def see(self, snapshot: LaneSnapshot, first_waiting: int) -> None:
        """`first_waiting` is the first update that Telegram still has: those before it were appended."""
        for group in snapshot.groups:
            self._collected(group)
        for update_id in [int(message_id.partition(":")[2]) for message_id in snapshot.asked]:
            record = snapshot.records.get(f"{self._bot_id}:{update_id}")
            progress = self.progress_table.get(update_id)
            if record is not None:
                self._forgotten_since_s.pop(update_id, None)
                if progress is not None:
                    self._recorded(progress, record, snapshot)
            elif update_id < first_waiting:
                self._forgotten(update_id, progress, snapshot.at_s)

    def _collected(self, group: list[int]) -> None:
        """These updates are one run. The first one has its progress."""
        head, *others = [self.progress_table.get(update_id) for update_id in group]
        if head is None or head.group == group:
            return
        for member in (head, *others):
            if member is not None:
                member.group = group
                member.state = head.state if member is head else COLLECTED
                self._go_on(member)

    def _recorded(self, progress: UpdateProgress, record: Record, snapshot: LaneSnapshot) -> None:
        why_buried = snapshot.reasons.get(record.id)
        before = (progress.state, progress.attempt, len(progress.steps))
        progress.add_deaths(record.died, snapshot.at_s)
        progress.state = STATES.get(record.state, "waiting")
        progress.appended_s = record.appended_us / 1e6
        if progress.state == "running":
            progress.attempt = max(progress.attempt, record.attempt)
        if record.died and progress.error is None:
            progress.error = "its process died while it ran"
        if why_buried is not None:
            progress.error = f"{why_buried.get('type')}: {why_buried.get('message')}"
            progress.traceback = str(why_buried.get("traceback") or "")
            progress.ended_s = why_buried.get("at_ms", 0) / 1000
        if (progress.state, progress.attempt, len(progress.steps)) != before:
            self._go_on(progress)
            if why_buried is not None:
                counted = max(record.failed + record.died, int(why_buried.get("attempt") or 0))
                self._failed(progress, max(progress.attempt, counted))

    def _forgotten(self, update_id: int, progress: UpdateProgress | None, at_s: float) -> None:
        if at_s - self._forgotten_since_s.setdefault(update_id, at_s) < FORGOTTEN_FOR_S:
            return
        del self._forgotten_since_s[update_id]
        if progress is not None and not progress.is_over and (progress.started_s or update_id not in self.audit.open):
            progress.state = "done"
            self._go_on(progress)
        elif update_id in self.audit.open:
            self.audit.lose([update_id])
        self._open.discard(update_id)

    def _go_on(self, progress: UpdateProgress) -> None:
        if progress.state == "done":
            self.audit.done(progress.update_id)
        elif progress.state == "buried":
            self.audit.buried(progress.update_id)
        if not progress.chat_id:
            return
        (self._open.discard if progress.is_over else self._open.add)(progress.update_id)
        self._storage.put_progress(progress.update_id, asdict(progress))
        self._changed(progress)


def problem_of(progress: UpdateProgress, attempt: int) -> dict[str, Any]:
    """A failure of the bot, in the form that the page gets."""
    what = "buried" if progress.state == "buried" else "it is retried"
    title = f"{progress.error} (update {progress.update_id}, attempt {attempt}: {what})"
    return {
        "id": f"handler{progress.update_id}",
        "at_s": progress.ended_s,
        "kind": "handler",
        "title": title,
        "traceback": progress.traceback,
        "update_id": progress.update_id,
        "solved": False,
    }
