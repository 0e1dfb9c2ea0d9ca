"""Finds the run that an update belongs to. Of updates that were collected (COLLECT), only the first has a record; the
content of the others is stored with it.
"""

from __future__ import annotations

from redis import Redis

from celery_lanes.monitoring import inspection
from celery_lanes.monitoring.inspection import Record

#: The most waiting messages of each group of queues, and the most groups before the update, that are searched.
MOST_WAITING, MOST_READ = 10_000, 1_000


def run_of(client: Redis, message_id: str) -> Record | None:
    """The record of this message, or of the one with which it was collected. None: there is neither."""
    return next(inspection.records(client, [message_id]), None) or _run_with(client, message_id)


def ids_of(client: Redis, record: Record) -> list[str]:
    """The ids of all messages of a run, the oldest first."""
    if record.size == 1:
        return [record.id]
    bot = record.id.rpartition(":")[0]
    updates = inspection.contents(client, record.id)
    return [record.id, *(f"{bot}:{each.get('update_id')}" for each in updates[1:] if isinstance(each, dict))]


def _run_with(client: Redis, message_id: str) -> Record | None:
    """Searches dead letters and the oldest waiting messages; those with ids right before this one first."""
    bot, _, number = message_id.rpartition(":")
    if not number.isdecimal():
        return None
    waiting = [each for group in inspection.groups(client) for each in inspection.pending(client, group, MOST_WAITING)]
    before: dict[int, str] = {}
    for each in (*inspection.dead(client), *waiting):
        its_bot, _, its_number = each.rpartition(":")
        if its_bot == bot and its_number.isdecimal() and int(its_number) < int(number):
            before[int(its_number)] = each
    nearest = [before[each] for each in sorted(before, reverse=True)]
    runs = [record for record in inspection.records(client, nearest) if record.size > 1]
    return next((record for record in runs[:MOST_READ] if message_id in ids_of(client, record)), None)
