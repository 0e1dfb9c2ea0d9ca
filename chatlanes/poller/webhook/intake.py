"""Appends the updates of one bot from its webhook to the lanes: filter, backlog limit and progress.

Guarantees that no update is accepted above MAX_PENDING, so that Telegram holds the rest, and that the backlog is read
again until updates fit. Connects to Redis on first use, and again after an outage.
"""

import logging
import time
from dataclasses import replace
from typing import Any

from chatlanes.lanes.protocol.replies import Appended
from chatlanes.logs.ids import thread_of
from chatlanes.poller.filter import Filter
from chatlanes.poller.progress import Progress
from chatlanes.poller.webhook.group_commit import GroupCommit
from chatlanes.settings import Settings
from chatlanes.updates.connection import connect_to
from chatlanes.updates.intake import Intake

log = logging.getLogger("poller")

#: For each answer of Redis: it leaves time to answer the update.
REDIS_ANSWERS_WITHIN_S = 4.0
#: While the backlog is too large it is read again after this time.
READ_EVERY_S = 0.5
#: Under constant overload the backlog crosses its limit every other second. This bounds the log lines.
LOG_EVERY_S = 30.0


class HookIntake:
    """The intake of one bot, in one process. Everything except `_append` runs on the event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._filtering = Filter(settings)
        self._intake: Intake | None = None
        self._commits = GroupCommit(
            self._append, self._appended, thread_of(settings.bot_name) if settings.bot_name else "appends"
        )
        self._pending = 0
        self._read_at_s = float("-inf")
        self._logged_at_s = float("-inf")
        self.progress = Progress()

    async def add(self, update: Any) -> None:
        """Returns when Redis holds the update durably. Raises NotDurableError."""
        await self._commits.add(update)

    def give_up(self) -> None:
        """Ends every wait in `add` with NotDurableError."""
        self._commits.give_up()

    def has_room(self) -> bool:
        """True if one more update may be accepted. Reads the backlog again if it was read some time ago."""
        if self._pending <= self._settings.max_pending:
            return True
        now_s = time.monotonic()
        self._log_limit(now_s)
        if now_s - self._read_at_s >= READ_EVERY_S:
            self._read_at_s = now_s
            self._commits.start()
        return False

    def _log_limit(self, now_s: float) -> None:
        if now_s - self._logged_at_s >= LOG_EVERY_S:
            self._logged_at_s = now_s
            limit = self._settings.max_pending
            log.warning("backlog %d is over MAX_PENDING %d: updates are answered with 503", self._pending, limit)

    def _append(self, updates: list[Any]) -> Appended:
        """Runs on the thread of the commits, one at a time. Raises RedisError, ServerUnfit."""
        if self._intake is None:
            self._intake = connected(self._settings)
        wanted = self._filtering.admitted(updates)
        kept = set(map(id, wanted))
        dropped = [update for update in updates if id(update) not in kept]
        appended = self._intake.append(wanted, hold_ms=self._settings.webhook_reorder, unwanted=dropped)
        if not wanted:  # an append returns the backlog only of the queues to which it appended
            appended = replace(appended, pending=self._intake.pending())
        if updates:
            self.progress.count(updates, len(dropped), appended)
        return appended

    def _appended(self, appended: Appended) -> None:
        self._pending = appended.pending


def connected(settings: Settings) -> Intake:
    """Connects to Redis and logs how durable it is. Raises RedisError, ServerUnfit."""
    intake = Intake(connect_to(settings, REDIS_ANSWERS_WITHIN_S), settings)
    log.log(logging.INFO if intake.durability.safe else logging.WARNING, "%s", intake.durability)
    for sentence in intake.advice:
        log.warning("%s", sentence)
    return intake
