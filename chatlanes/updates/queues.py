"""Finds unread queues: unknown names in -Q or -X, and updates left in queues above QUEUES.

Each finding is one sentence that says what to do. Only the oldest updates are counted, because a backlog may be large.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from redis import Redis

from celery_lanes.monitoring import inspection
from chatlanes.settings import Settings

#: The number of oldest updates that are examined.
MOST_EXAMINED = 2_000


def unknown(requested: Iterable[str], known: Collection[str]) -> str | None:
    """One sentence if -Q or -X names a queue that this deployment does not have."""
    strange = [name for name in requested if name not in known]
    if not strange:
        return None
    return (
        f"-Q or -X names {', '.join(strange)}: there is no such queue. The queues are {', '.join(sorted(known))} "
        "(QUEUES sets their number)"
    )


def left_behind(client: Redis, settings: Settings) -> list[str]:
    """One sentence if updates wait in queues above QUEUES. Raises RedisError."""
    read = {settings.express_queue, *settings.queue_names}
    waiting = inspection.records(client, inspection.pending(client, settings.queue_group, MOST_EXAMINED))
    unread = Counter(record.queue for record in waiting if record.queue not in read)
    if not unread:
        return []
    return [
        f"at least {unread.total()} updates wait in {', '.join(sorted(unread))}, which no worker reads while QUEUES is "
        f"{settings.queues}: restore the former QUEUES until they are processed"
    ]
