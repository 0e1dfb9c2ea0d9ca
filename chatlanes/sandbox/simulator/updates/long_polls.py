"""getUpdates as the public server implements it.

The newest long poll wins and ends the older one; offsets confirm on arrival. The delays for repeated offsets and
conflicts can be switched off (`quirks`), because they slow down tests that poll in short steps.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import orjson

from chatlanes.sandbox.simulator.calls.params import whole
from chatlanes.sandbox.simulator.updates.pending import PendingUpdates

MAX_TIMEOUT_S = 50
MAX_LIMIT = 100
#: The server waits this long after the first update of a long poll for more.
GATHER_S = 0.001
#: Within this long after a poll, one with the same offset is held for at least this long.
SAME_OFFSET_HOLD_S = 3.0
#: Within this long after a poll, one with the same offset gets a single update.
SAME_OFFSET_SINGLE_S = 0.5
#: A conflict this soon after another is answered after this delay.
CONFLICT_HOLD_S = 3.0

WEBHOOK_ACTIVE = "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
OTHER_POLLER = "terminated by other getUpdates request; make sure that only one bot instance is running"
WEBHOOK_SET = "terminated by setWebhook request"

#: Ends when the sender of a request has closed its connection.
Gone = Callable[[], Coroutine[Any, Any, None]]


class GetUpdatesConflictError(Exception):
    """Another consumer receives the token's updates; the text is Telegram's."""


class LongPolls:
    """The polls of one bot: at most one waits, all others are answered at once."""

    def __init__(self, updates: PendingUpdates, *, quirks: bool) -> None:
        self.quirks = quirks
        self.received = 0
        self.conflicts = 0
        self.last_offset = 0
        self._updates = updates
        self._waiting: asyncio.Future[None] | None = None
        self._last_at = float("-inf")
        self._last_conflict_at = float("-inf")

    async def get(self, params: dict[str, Any], gone: Gone) -> list[bytes]:
        """Answer one getUpdates, after at most its timeout.

        Raises GetUpdatesConflictError.
        """
        offset = whole(params, "offset", 0)
        limit = min(max(whole(params, "limit", MAX_LIMIT), 1), MAX_LIMIT)
        timeout_s: float = min(max(whole(params, "timeout", 0), 0), MAX_TIMEOUT_S)
        self.allow(params.get("allowed_updates"))
        if self.quirks:
            limit, timeout_s = self._held_back(offset, limit, timeout_s)
        self.received += 1
        self.last_offset, self._last_at = offset, time.monotonic()
        self._updates.confirm(offset)
        if timeout_s and not len(self._updates):
            await self._wait(timeout_s, gone)
        return self._updates.oldest(limit)

    def allow(self, kinds: Any) -> None:
        """Set the kinds, which stay until the next list; an unreadable list changes nothing."""
        if isinstance(kinds, str):
            try:
                kinds = orjson.loads(kinds)
            except orjson.JSONDecodeError:
                return
        if isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds):
            self._updates.allow(kinds)

    def _held_back(self, offset: int, limit: int, timeout_s: float) -> tuple[int, float]:
        since_s = time.monotonic() - self._last_at
        if offset != self.last_offset:
            return limit, timeout_s
        if since_s < SAME_OFFSET_HOLD_S:
            timeout_s = max(timeout_s, SAME_OFFSET_HOLD_S)
        return (1 if since_s < SAME_OFFSET_SINGLE_S else limit), timeout_s

    async def _wait(self, timeout_s: float, gone: Gone) -> None:
        self.terminate(OTHER_POLLER)
        woken = self._waiting = asyncio.get_running_loop().create_future()
        hung_up = asyncio.ensure_future(gone())
        try:
            await asyncio.wait({woken, hung_up}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hung_up.cancel()
            if self._waiting is woken:
                self._waiting = None
        if woken.done():
            await self._told(woken)

    async def _told(self, woken: asyncio.Future[None]) -> None:
        """Updates have arrived, and more may follow at once, or this poll was terminated."""
        if woken.exception() is None:
            await asyncio.sleep(GATHER_S)
            return
        self.conflicts += 1
        if self.quirks and time.monotonic() < self._last_conflict_at + CONFLICT_HOLD_S:
            await asyncio.sleep(CONFLICT_HOLD_S)
        else:
            self._last_conflict_at = time.monotonic()
        woken.result()

    def wake(self) -> None:
        """Answer the waiting poll: updates have arrived, or none will arrive any more."""
        if self._waiting and not self._waiting.done():
            self._waiting.set_result(None)

    def terminate(self, reason: str) -> None:
        """End the waiting poll with a conflict."""
        if self._waiting and not self._waiting.done():
            self._waiting.set_exception(GetUpdatesConflictError(f"Conflict: {reason}"))
