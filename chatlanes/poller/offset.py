"""The offset of getUpdates: where the next batch begins. Pure.

Guarantees that the offset never moves past an update that was not in the batch, and that no id is read from malformed
data.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

#: The Bot API stores update ids in an int32. A larger id is invalid, and an offset made of it would make a lenient
#: server forget all later updates.
LARGEST_UPDATE_ID = 2**31 - 2

#: After a week without updates Telegram continues at a random id, which may be lower than the offset. A server that
#: obeys the old offset would then forget new updates unseen. The day of margin covers clocks and expiry.
FORGET_OFFSET_AFTER_S = 6 * 24 * 3600.0


@dataclass(frozen=True)
class Offset:
    """Where the next batch begins: everything below `offset` is durable in Redis. `moved_at_s` is Unix time."""

    offset: int | None = None
    moved_at_s: float = 0.0

    def offset_at(self, now_s: float) -> int | None:
        """The offset to send; None at start, and if the last offset is too old to be valid.

        None is always safe: the server returns what it holds, oldest first, and forgets nothing; updates that were
        appended before are dropped as seen. A negative offset is not safe: the server keeps that many of the newest
        updates and deletes the others unseen. The time is wall-clock time, which advances while the machine sleeps.
        If the clock is set forward, the offset is discarded too early; this costs one batch that is dropped as seen.
        """
        return self.offset if now_s - self.moved_at_s < FORGET_OFFSET_AFTER_S else None

    def after(self, updates: Iterable[Any], now_s: float) -> "Offset":
        """The offset after the highest id of a batch, even if that is lower than before: Telegram restarted the ids."""
        newest = newest_id(updates)
        return self if newest is None else Offset(newest + 1, now_s)


def newest_id(updates: Iterable[Any]) -> int | None:
    """The highest valid update id; None if there is none."""
    return max((update["update_id"] for update in updates if has_id(update)), default=None)


def has_id(update: Any) -> bool:
    """True if the update has a valid id."""
    update_id = update.get("update_id") if isinstance(update, dict) else None
    return type(update_id) is int and 0 <= update_id <= LARGEST_UPDATE_ID
