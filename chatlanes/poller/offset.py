"""The offset of getUpdates: where the next batch begins. Pure.

Guarantees never to move the offset past an update that was not in the batch, and never to read an id from malformed
data.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

#: The Bot API keeps update ids in an int32; a larger one is garbage, and an offset made of it would tell a
#: lenient server to forget everything that is still to come.
LARGEST_UPDATE_ID = 2**31 - 2

#: After a week without updates Telegram goes on at a random id, which may be lower than the offset: a server that
#: takes the old offset at its word would then forget new updates unseen. A day of margin covers clocks and expiry.
FORGET_OFFSET_AFTER_S = 6 * 24 * 3600.0


@dataclass(frozen=True)
class Offset:
    """Where the next batch begins: everything below `offset` is durable in Redis. `moved_at_s` is Unix time."""

    offset: int | None = None
    moved_at_s: float = 0.0

    def offset_at(self, now_s: float) -> int | None:
        """The offset to send, None for none: at start, and when the last one is too old to mean anything.

        None is always safe: the server gives what it holds, oldest first, and forgets nothing; what was appended
        before is dropped as seen. A negative offset is not: the server keeps that many of the newest updates and
        deletes the rest unseen. The time is the wall clock's, which goes on while the machine sleeps; when it is
        set forward by hand, the offset is forgotten too early, which costs one batch that is dropped as seen.
        """
        return self.offset if now_s - self.moved_at_s < FORGET_OFFSET_AFTER_S else None

    def after(self, updates: Iterable[Any], now_s: float) -> "Offset":
        """Past the highest id of a batch, also when that is lower than before: then Telegram has restarted the ids."""
        newest = newest_id(updates)
        return self if newest is None else Offset(newest + 1, now_s)


def newest_id(updates: Iterable[Any]) -> int | None:
    """The highest valid update id, None when there is none."""
    return max((update["update_id"] for update in updates if has_id(update)), default=None)


def has_id(update: Any) -> bool:
    """Whether an offset may be made of this update's id."""
    update_id = update.get("update_id") if type(update) is dict else None
    return type(update_id) is int and 0 <= update_id <= LARGEST_UPDATE_ID
