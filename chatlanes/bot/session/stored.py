"""What one update stores in Redis: read on request, written in the step that finishes the update.

Guarantees that nothing is written unless the handler succeeded and the lease still holds, that all is written or
nothing, and that two updates which write the same key never run at the same time. The bytes are opaque here:
ctx.session is JSON, and an adapter stores what it likes.
"""

from __future__ import annotations

from chatlanes.lanes.errors import RedisAway
from chatlanes.lanes.protocol.commands import Delete, Move, Set, Write
from chatlanes.lanes.worker.delivery import Delivery
from chatlanes.telegram.flood import Parking
from chatlanes.updates import WHOLE_BOT

#: string: what a bot keeps under one of its keys, named <bot id>/<key>: as JSON where it is a session (session.py)
SESSION = "session:"


def redis_key(bot_id: str, key: str) -> str:
    return f"{SESSION}{bot_id}/{key}"


class UnsafeKeyError(Exception):
    """Nothing keeps another update from writing this key at the same time. The text says which keys are safe."""


class Stored:
    """A key is safe when it, or its part before the first `/`, is one of the keys the update is ordered by.

    With ORDER_BY=chat the updates of chat 7 may keep `chat:7`, `chat:7/user:9`, `chat:7/cart`, and no other's. With
    ORDER_BY=bot, where each waits for all, any key is safe.
    """

    def __init__(self, delivery: Delivery, parking: Parking) -> None:
        self._delivery = delivery
        self._parking = parking
        self._order: frozenset[str] | None = None
        self._found: dict[str, bytes | None] = {}
        self._moves: dict[str, Move] = {}
        self._staged: dict[str, Set | Delete] = {}

    def fetch(self, *keys: str) -> None:
        """Read these in one round trip, for `load`. Raises as `load`."""
        if self.is_wanting(*keys):
            self._read(*dict.fromkeys(key for key in keys if key not in self._found))

    def is_wanting(self, *keys: str) -> bool:
        """Whether one of them was not read yet. Asks nobody."""
        return any(key not in self._found for key in keys)

    def load(self, key: str) -> bytes | None:
        """What was kept under a key, or is staged for it. One round trip, the first time.

        Raises UnsafeKeyError, chatlanes.lanes.LeaseLost, and ParkUpdate when Redis stays away for as long as a lease.
        """
        if key in self._staged:
            staged = self._staged[key]
            return staged.value if isinstance(staged, Set) else None
        if key not in self._found:
            self._read(key)
        self._check(key)
        return self._found[key]

    def stage(self, key: str, value: bytes | None, ttl_s: float | None = None) -> None:
        """Keep this with the update, for `ttl_s` seconds (None: for ever); None deletes. Raises as `load`."""
        self._check(key)
        name = self._name(key)
        ttl_ms = 0 if ttl_s is None else max(round(ttl_s * 1000), 1)
        self._staged[key] = Delete(name) if value is None else Set(name, value, ttl_ms)

    def move(self, old: str, new: str) -> None:
        """Let `new` have what `old` keeps, if that keeps anything, before all else that is staged. Raises as `load`."""
        if self.load(old) is None:
            return
        self._check(new)
        self._moves[old] = Move(self._name(old), self._name(new))
        self._found[new], self._found[old] = self._found[old], None

    def is_safe(self, key: str) -> bool:
        """Whether this update may keep something under a key. Raises LeaseLost and ParkUpdate."""
        if self._order is None:
            self._read()
        order = self._order or frozenset()
        return key.partition("/")[0] in order or key in order or WHOLE_BOT in order

    @property
    def writes(self) -> list[Write]:
        """What is to be committed."""
        return [*self._moves.values(), *self._staged.values()]

    def _read(self, *wanted: str) -> None:
        try:
            answer = self._delivery.read([self._name(key) for key in wanted])
        except RedisAway as outage:
            self._parking.cut_off(outage)
        # The lanes that it stands in, not what ORDER_BY says: that may have changed since it was appended.
        self._order = frozenset(key.removeprefix(f"{self._bot_id}/") for key in answer.lanes)
        self._found.update(zip(wanted, answer.values, strict=True))

    def _check(self, key: str) -> None:
        if self.is_safe(key):
            return
        order = " and ".join(sorted(self._order or ())) or "nothing"
        raise UnsafeKeyError(
            f"{key} cannot be kept with this update, which is ordered by {order}: another update of {key} may run at "
            "the same time, and one of the two would lose what it wrote"
        )

    @property
    def _bot_id(self) -> str:
        return self._delivery.id.partition(":")[0]

    def _name(self, key: str) -> str:
        return redis_key(self._bot_id, key)
