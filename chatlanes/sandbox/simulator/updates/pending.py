"""Updates that no poller has confirmed.

As at the public server, an update is dropped when a request with a higher offset arrives, kinds that are not allowed
are not stored, and neither are new updates when the store is full. Updates do not expire here.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

import orjson

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
