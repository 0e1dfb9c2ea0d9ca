"""Queues that nobody reads: a name that is none, and what was left behind when QUEUES was lowered.

Promises a sentence that says what to do. Does not count all that was left behind: that may be a large backlog.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from redis import Redis

from chatlanes.lanes.monitoring import inspection
from chatlanes.settings import Settings

#: Of the backlog, the oldest.
LOOKED_AT = 2_000


def unknown(asked: Iterable[str], known: Collection[str]) -> str | None:
    """A sentence when one of the queues of -Q or -X is none of this deployment's."""
    strange = [name for name in asked if name not in known]
    if not strange:
        return None
    return (
        f"-Q or -X names {', '.join(strange)}: there is no such queue. There are {', '.join(sorted(known))} "
        "(QUEUES says how many)"
    )


def left_behind(client: Redis, settings: Settings) -> list[str]:
    """A sentence when updates wait in queues above QUEUES. Raises RedisError."""
    read = {settings.express_queue, *settings.queue_names}
    waiting = inspection.records(client, inspection.pending(client, settings.queue_group, LOOKED_AT))
    unread = Counter(record.queue for record in waiting if record.queue not in read)
    if not unread:
        return []
    return [
        f"at least {unread.total()} updates wait in {', '.join(sorted(unread))}, which nobody reads while QUEUES is "
        f"{settings.queues}: set QUEUES as it was until they are through"
    ]
