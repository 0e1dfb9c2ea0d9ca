"""Updates that no poller has confirmed, and getUpdates as the public server implements it.

An update is dropped when a request with a higher offset arrives, kinds that are not allowed are not stored, and neither
are new updates when the store is full; updates do not expire here. The newest long poll wins and ends the older one.
The delays for repeated offsets and conflicts can be switched off (`quirks`), because they slow down tests that poll in
short steps.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import orjson

from chatlanes_sandbox.simulator.calls.params import parsed, whole

#: Kinds that Telegram sends only to bots that ask for them by name.
NOT_BY_DEFAULT = frozenset({"chat_member", "message_reaction", "message_reaction_count"})
#: Beyond this many waiting updates the server drops new ones.
MOST_WAITING = 100_000
#: A reply has at most about 4 MiB, so it may contain fewer updates than requested.
REPLY_BYTES = 1 << 22
#: An offset further than this beyond the newest update is taken for a mistake: it confirms nothing.
OFFSET_SLACK = 10


class PendingUpdates:
    """The store of one bot. Updates are serialised once, on arrival: a batch only joins bytes."""

    def __init__(self, first_id: int = 1) -> None:
        self._waiting: deque[tuple[int, bytes]] = deque()
        self.next_id = first_id
        self._allowed: frozenset[str] | None = None
        self.added = 0
        self.dropped = 0
        self.confirmed = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first_id(self) -> int:
        """The id of the first waiting update; the next id if none waits."""
        return self._waiting[0][0] if self._waiting else self.next_id

    def add(self, update: dict[str, Any]) -> int | None:
        """Store an update, under its own update_id or the next one; None when it was dropped."""
        if not self._allows(kind_of(update)):
            self.dropped += 1
            return None
        update_id = update.get("update_id", self.next_id)
        return self._store(update_id, orjson.dumps({"update_id": update_id, **update}))

    def add_raw(self, body: Any) -> int | None:
        """Store any value unchanged, malformed or not; it is confirmed by the id it would have had."""
        return self._store(self.next_id, orjson.dumps(body))

    def _store(self, update_id: int, body: bytes) -> int | None:
        if len(self._waiting) >= MOST_WAITING:
            self.dropped += 1
            return None
        self._waiting.append((update_id, body))
        self.next_id = update_id + 1
        self.added += 1
        return update_id

    def allow(self, kinds: Iterable[str]) -> None:
        """From now on only these kinds are stored; none given means Telegram's default."""
        self._allowed = frozenset(kind.lower() for kind in kinds) or None

    @property
    def allowed(self) -> list[str] | None:
        return None if self._allowed is None else sorted(self._allowed)

    def _allows(self, kind: str) -> bool:
        return kind not in NOT_BY_DEFAULT if self._allowed is None else kind in self._allowed

    def confirm(self, offset: int) -> None:
        """Forget what lies before `offset`; a negative one keeps only the last -offset updates, 0 keeps all."""
        if offset > self.next_id + OFFSET_SLACK:
            return
        if offset < 0:
            self._forget(max(0, len(self._waiting) + offset))
        elif offset > 0:
            while self._waiting and self._waiting[0][0] < offset:
                self._forget(1)

    def _forget(self, count: int) -> None:
        for _ in range(count):
            self._waiting.popleft()
        self.confirmed += count

    def delivered(self, update_id: int) -> None:
        """Forget an update that a webhook has accepted, whatever its position."""
        for place, (waiting, _) in enumerate(self._waiting):
            if waiting == update_id:
                del self._waiting[place]
                self.confirmed += 1
                return

    def waiting(self) -> list[tuple[int, bytes]]:
        """All of them, oldest first."""
        return list(self._waiting)

    def newest(self, count: int) -> list[tuple[int, bytes]]:
        """The last updates, oldest first."""
        return list(self._waiting)[len(self._waiting) - count :] if count else []

    def forget_all(self) -> None:
        self._forget(len(self._waiting))

    def oldest(self, limit: int) -> list[bytes]:
        """At most `limit` updates that fit into one reply, oldest first; they stay stored."""
        batch: list[bytes] = []
        room = REPLY_BYTES
        for _, body in self._waiting:
            room -= 50 + len(body)
            if len(batch) == limit or room <= 0:
                break
            batch.append(body)
        return batch


def kind_of(update: dict[str, Any]) -> str:
    """The name of the field with the event."""
    return next((field for field in update if field != "update_id"), "")


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
        """Answer one getUpdates, after at most its timeout. Raises GetUpdatesConflictError."""
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
        kinds = parsed(kinds)
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
