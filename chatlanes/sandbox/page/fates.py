"""What has become of each update: from what the workers tell, from what stands in Redis, from the bot's calls.

Promises that an update whose end nobody could tell (its worker was killed) is known to be over when Redis has forgotten
it, a little later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from chatlanes.lanes.monitoring.inspection import Record
from chatlanes.sandbox.page.kept import Kept
from chatlanes.sandbox.page.ledger import Ledger
from chatlanes.sandbox.page.listening import Event, live_on, update_id_of
from chatlanes.sandbox.page.lives import Life, Lives
from chatlanes.sandbox.page.watch import Look

#: What Redis has forgotten is over; but its worker may be about to tell how it went.
FORGOTTEN_FOR_S = 5.0
#: Looked for at a time.
MOST_ASKED = 1_000
STATES = {"leased": "running", "delayed": "delayed", "buried": "buried"}


class Fates:
    """`changed` is called with each life of the page's chats that went on, `failed` with each failure of the bot."""

    def __init__(
        self, kept: Kept, bot_id: int, changed: Callable[[Life], None], failed: Callable[[Life], None]
    ) -> None:
        self._kept = kept
        self._bot_id = bot_id
        self._changed = changed
        self._failed = failed
        self.ledger = Ledger()
        self.lives = Lives()
        for life in kept.lives():
            self.lives.add(Life(**life))
        self._open = {life.update_id for life in self.lives.values() if not life.is_over}
        self._forgotten_since_s: dict[int, float] = {}

    def begin(self, life: Life) -> None:
        """A new update."""
        self.lives.add(life)
        if life.chat_id:
            self._open.add(life.update_id)
            self._kept.put_life(life.update_id, asdict(life))

    def replayed(self, update_id: int) -> None:
        """It stands in its lanes again, and its attempts are counted anew."""
        life = self.lives.get(update_id)
        if life is not None:
            life.state, life.attempt, life.starts = "waiting", 0, 0
            self._go_on(life)

    def confirmed(self, first: int, behind: int) -> None:
        """The poller has appended these."""
        for update_id in range(max(first, behind - MOST_ASKED), behind):
            life = self.lives.get(update_id)
            if life is not None and life.appended_s is None:
                life.appended_s = min(time.time(), life.started_s or time.time())

    def hear(self, event: Event) -> None:
        """Of a worker."""
        update_id = update_id_of(event, self._bot_id)
        life = None if update_id is None else self.lives.get(update_id)
        if life is None:
            return
        has_failed = live_on(life, event)
        self._go_on(life)
        if has_failed:
            self._failed(life)

    def asks(self) -> frozenset[str]:
        """The messages whose fate is not known."""
        wanted = sorted(self._open | self.ledger.open)[:MOST_ASKED]
        return frozenset(f"{self._bot_id}:{update_id}" for update_id in wanted)

    def see(self, look: Look, first_waiting: int) -> None:
        """`first_waiting` is the first update that Telegram still has: those before it were appended."""
        for update_id in [int(message_id.partition(":")[2]) for message_id in look.asked]:
            record = look.records.get(f"{self._bot_id}:{update_id}")
            life = self.lives.get(update_id)
            if record is not None:
                self._forgotten_since_s.pop(update_id, None)
                if life is not None:
                    self._recorded(life, record, look.reasons.get(record.id))
            elif update_id < first_waiting:
                self._forgotten(update_id, life, look.at_s)

    def _recorded(self, life: Life, record: Record, why_buried: dict[str, Any] | None) -> None:
        before = (life.state, life.attempt)
        life.state = STATES.get(record.state, "waiting")
        life.appended_s = record.appended_us / 1e6
        if life.state == "running":
            life.attempt = max(life.attempt, record.attempt)
        if record.died and life.error is None:
            life.error = "its process died in the middle of it"
        if why_buried is not None:
            life.error = f"{why_buried.get('type')}: {why_buried.get('message')}"
            life.traceback = str(why_buried.get("traceback") or "")
            life.ended_s = why_buried.get("at_ms", 0) / 1000
        if (life.state, life.attempt) != before:
            self._go_on(life)
            if why_buried is not None:
                self._failed(life)

    def _forgotten(self, update_id: int, life: Life | None, at_s: float) -> None:
        if at_s - self._forgotten_since_s.setdefault(update_id, at_s) < FORGOTTEN_FOR_S:
            return
        del self._forgotten_since_s[update_id]
        if life is not None and not life.is_over and (life.started_s or update_id not in self.ledger.open):
            life.state = "done"
            self._go_on(life)
        elif update_id in self.ledger.open:
            self.ledger.lose([update_id])
        self._open.discard(update_id)

    def _go_on(self, life: Life) -> None:
        if life.state == "done":
            self.ledger.done(life.update_id)
        elif life.state == "buried":
            self.ledger.buried(life.update_id)
        if not life.chat_id:
            return
        (self._open.discard if life.is_over else self._open.add)(life.update_id)
        self._kept.put_life(life.update_id, asdict(life))
        self._changed(life)


def problem_of(life: Life) -> dict[str, Any]:
    """A failure of the bot, as the page is told of it."""
    what = "buried" if life.state == "buried" else "it is tried again"
    title = f"{life.error} (update {life.update_id}, attempt {life.attempt}: {what})"
    return {
        "id": f"handler{life.update_id}",
        "at_s": life.ended_s,
        "kind": "handler",
        "title": title,
        "traceback": life.traceback,
        "update_id": life.update_id,
        "solved": False,
    }
