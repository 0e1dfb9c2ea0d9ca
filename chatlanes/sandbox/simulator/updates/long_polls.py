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
#: The server waits this long after the first update of a long poll, for others that come with it.
GATHER_S = 0.001
#: Within this long after a poll, one with the same offset is held for at least this long.
SAME_OFFSET_HOLD_S = 3.0
#: Within this long after a poll, one with the same offset gets a single update.
SAME_OFFSET_SINGLE_S = 0.5
#: A conflict this soon after another is answered only so much later.
CONFLICT_HOLD_S = 3.0

WEBHOOK_ACTIVE = "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
OTHER_POLLER = "terminated by other getUpdates request; make sure that only one bot instance is running"
WEBHOOK_SET = "terminated by setWebhook request"

#: Ends when the sender of a request has hung up.
Gone = Callable[[], Coroutine[Any, Any, None]]


class GetUpdatesConflictError(Exception):
    """The token's updates go elsewhere; the text is Telegram's."""


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
        """The last list set stays in force; what cannot be read changes nothing."""
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
        """Either there are updates now, and more may come with them, or this poll has been terminated."""
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
        """There are new updates, or none will come any more: the waiting poll is answered."""
        if self._waiting and not self._waiting.done():
            self._waiting.set_result(None)

    def terminate(self, reason: str) -> None:
        """The waiting poll is told that it lost the token."""
        if self._waiting and not self._waiting.done():
            self._waiting.set_exception(GetUpdatesConflictError(f"Conflict: {reason}"))
