"""The data that one update stores in Redis: read on request, written in the step that settles the update.

The writes happen all or not at all, and only if the handler succeeded and the lease still holds. Two updates that write
the same key never run at the same time. The values are opaque bytes here: ctx.session is JSON, adapters use their own
formats.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import TypeVar

from celery_lanes.errors import RedisAway
from celery_lanes.protocol import CancelTimer, Delete, Move, Set, SetMode, SetTimer, Store, StoredTimer, Write
from celery_lanes.worker.delivery import Delivery
from chatlanes.telegram.flood import Parking
from chatlanes.updates import WHOLE_BOT

#: One update may stage so much. Its commit keeps Redis and its lanes busy for longer, the more it writes.
MOST_TIMERS = 1_000
MOST_WRITES = 1_000
MOST_BYTES = 16 * 1024 * 1024

T = TypeVar("T")

#: <bot id>/<key>: string: a value that a bot stores; a session (session.py) is JSON
SESSION = "session:"


def redis_key(bot_id: str, key: str) -> str:
    return f"{SESSION}{bot_id}/{key}"


class UnsafeKeyError(Exception):
    """Another update could write this key at the same time. The message says which keys are safe."""


class TooMuchStagedError(ValueError):
    """One update sets more timers or stores more than it may. The message names the limit."""


class Stored:
    """The stored data of one update. An update may store only safe keys: a key is safe if it, or its part before the
    first `/`, is one of the keys the update is ordered by.

    With ORDER_BY=chat the updates of chat 7 may store `chat:7`, `chat:7/user:9`, `chat:7/cart`, but nothing of other
    chats. With ORDER_BY=bot, where each update waits for all others, any key is safe.
    """

    def __init__(self, delivery: Delivery, parking: Parking) -> None:
        self._delivery = delivery
        self._parking = parking
        self._order: frozenset[str] | None = None
        self._found: dict[str, bytes | None] = {}
        self._moves: dict[str, Move] = {}
        self._staged: dict[str, Set | Delete] = {}
        #: The numbers of things that the run does not name, the same in each run.
        self.numbers = count(1)
        self._timers: dict[tuple[str, str], SetTimer | CancelTimer] = {}
        self._first: list[Write] = []
        self._modes: list[SetMode] = []
        self._bytes = 0

    @property
    def message_id(self) -> str:
        """The same in each run of the update."""
        return self._delivery.id

    @property
    def bot_id(self) -> str:
        return self._delivery.id.partition(":")[0]

    def following(self) -> int:
        """How many updates wait behind this one in a lane, at most. Raises RedisError."""
        return self._delivery.following()

    def fetch(self, *keys: str) -> None:
        """Read these keys in one round trip, for `load`. Raises the same as `load`."""
        if self.is_unread(*keys):
            self._read(*dict.fromkeys(key for key in keys if key not in self._found))

    def is_unread(self, *keys: str) -> bool:
        """True if one of these keys has not been read yet. Does not ask Redis."""
        return any(key not in self._found for key in keys)

    def load(self, key: str) -> bytes | None:
        """The stored or staged value of a key. The first call takes one round trip.

        Raises UnsafeKeyError, celery_lanes.LeaseLost, and ParkUpdate if Redis is unavailable for as long as a lease.
        """
        if key in self._staged:
            staged = self._staged[key]
            return staged.value if isinstance(staged, Set) else None
        if key not in self._found:
            self._read(key)
        self._check(key)
        return self._found[key]

    def stage(self, key: str, value: bytes | None, ttl_s: float | None = None) -> None:
        """Store a value when the update is settled, for `ttl_s` seconds (None: without limit). The value None deletes
        the key. Raises the same as `load`, and TooMuchStagedError.
        """
        self._check(key)
        name = self._name(key)
        if key not in self._staged and len(self._staged) >= MOST_WRITES:
            raise TooMuchStagedError(f"an update may store at most {MOST_WRITES:,} values; {key} is one more")
        self._count(self._staged.get(key), len(value or b""))
        ttl_ms = 0 if ttl_s is None else max(round(ttl_s * 1000), 1)
        self._staged[key] = Delete(name) if value is None else Set(name, value, ttl_ms)

    def move(self, old: str, new: str) -> None:
        """Move the value of `old`, if any, to `new`, before all other staged writes. Raises the same as `load`."""
        if self.load(old) is None:
            return
        self._check(new)
        self._moves[old] = Move(self._name(old), self._name(new))
        self._found[new], self._found[old] = self._found[old], None

    def is_safe(self, key: str) -> bool:
        """True if this update may store this key. Raises LeaseLost and ParkUpdate."""
        if self._order is None:
            self._read()
        order = self._order or frozenset()
        return key.partition("/")[0] in order or key in order or WHOLE_BOT in order

    def stage_first(self, writes: list[Write]) -> None:
        """Do these writes before the staged timers when the update is settled."""
        self._first = writes

    def mode_of(self, lane: str = "") -> str | None:
        """The mode of a lane, by default of the update's first one. One round trip. Raises the same as `timers`, and
        celery_lanes.LeaseLost.
        """
        try:
            return self._delivery.mode_of(lane)
        except RedisAway as outage:
            self._parking.cut_off(outage)

    def stage_modes(self, writes: list[SetMode]) -> None:
        """Set these modes when the update is settled, and no others."""
        self._modes = writes

    def stage_timer(self, write: SetTimer | CancelTimer) -> None:
        """Set or cancel a timer when the update is settled. Raises TooMuchStagedError."""
        place = write.owner, write.name
        if place not in self._timers and len(self._timers) >= MOST_TIMERS:
            raise TooMuchStagedError(
                f"one run may set and cancel at most {MOST_TIMERS:,} timers; {write.name} is one more. Let one timer "
                "set the next ones"
            )
        self._count(self._timers.get(place), _size(write))
        self._timers[place] = write

    def timers(self, *owners: str) -> list[StoredTimer]:
        """The timers of these owners, the next one first, as they will be after the staged writes. Raises ParkUpdate if
        Redis is unavailable for as long as a lease.
        """
        found = {(timer.owner, timer.name): timer for timer in self.ask(lambda store: store.timers(*owners))}
        for key, write in self._timers.items():
            found.pop(key, None)
            if isinstance(write, SetTimer) and write.owner in owners:
                at_ms = round(time.time() * 1000) + write.in_ms if write.at_ms is None else write.at_ms
                stored = write.stored.encode() if isinstance(write.stored, str) else write.stored
                found[key] = StoredTimer(*key, at_ms, write.id, write.queue, list(write.lanes), stored)
        return sorted(found.values(), key=lambda timer: timer.at_ms)

    def timer_owners(self, prefix: str) -> list[str]:
        """The owners that begin with `prefix`, as they will be after the staged writes. Raises the same as `timers`."""
        staged = {owner for owner, _ in self._timers if owner.startswith(prefix)}
        return sorted({*self.ask(lambda store: store.timer_owners(prefix)), *staged})

    def ask(self, step: Callable[[Store], T]) -> T:
        """The result of a step, which may be done twice. Raises the same as `timers`."""
        try:
            return self._delivery.journal.retry_until_done(lambda: step(self._delivery.lanes.store))
        except RedisAway as outage:
            self._parking.cut_off(outage)

    @property
    def writes(self) -> list[Write]:
        """The writes to commit."""
        return [*self._moves.values(), *self._staged.values(), *self._first, *self._timers.values(), *self._modes]

    def _count(self, replaced: Set | Delete | SetTimer | CancelTimer | None, size: int) -> None:
        """Count the bytes of a staged write, which replaces another one."""
        total = self._bytes + size - _size(replaced)
        if total > MOST_BYTES:
            raise TooMuchStagedError(
                f"an update may store at most {MOST_BYTES // 2**20} MiB in all its values and timers; this would be "
                f"{total / 2**20:.1f} MiB"
            )
        self._bytes = total

    def _read(self, *wanted: str) -> None:
        try:
            answer = self._delivery.read([self._name(key) for key in wanted])
        except RedisAway as outage:
            self._parking.cut_off(outage)
        # The update's lanes, not the current ORDER_BY, which may have changed since the append.
        self._order = frozenset(key.removeprefix(f"{self.bot_id}/") for key in answer.lanes)
        self._found.update(zip(wanted, answer.values, strict=True))

    def _check(self, key: str) -> None:
        if self.is_safe(key):
            return
        order = " and ".join(sorted(self._order or ())) or "nothing"
        raise UnsafeKeyError(
            f"{key} cannot be stored with this update, which is ordered by {order}: another update of {key} may run at "
            "the same time, and one of the two writes would be lost"
        )

    def _name(self, key: str) -> str:
        return redis_key(self.bot_id, key)


def _size(write: Set | Delete | SetTimer | CancelTimer | None) -> int:
    match write:
        case Set():
            return len(write.value)
        case SetTimer():
            return len(write.stored)
        case _:
            return 0
