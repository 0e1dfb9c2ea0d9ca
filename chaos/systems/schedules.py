"""The schedules of a chaos run. One catches up what it missed, the other fires once for all of that."""

from __future__ import annotations

from redis import Redis

from celery_lanes.protocol import Store
from chaos.systems.recording import message_id, recorded
from chatlanes import Context, Schedule
from chatlanes.bot.schedules import ScheduleRecord, owner_of

PATH = "chaos.systems.schedules:schedules"
KIND = "schedule"
BOT_ID, CHAT = 1, 999
#: The schedule of which every occurrence is fired, and its period. At most 100 are caught up: outages are shorter.
ALL, EVERY_S = "all", 2


def send(ctx: Context) -> None:
    """Records its run, and sends one message."""
    occurrence = ctx.schedule
    assert occurrence is not None  # noqa: S101 - it is called by schedules only
    due_s = round(occurrence.due.timestamp())
    with recorded(ctx, 0, [f"{KIND}:{occurrence.name}"], kind=KIND, message=message_id()) as run:
        run.call(0, CHAT, f"{KIND} {occurrence.name} {due_s}")


def last_fired(client: Redis) -> dict[str, int]:
    """When the last occurrence of each schedule was due, in seconds since 1970; 0: none was fired."""
    _, stored = Store(client).schedules()
    records = {
        name: ScheduleRecord.decode(found) for (owner, name), found in stored.items() if owner == owner_of(BOT_ID)
    }
    return {name: (record.last_ms or 0) // 1000 for name, record in records.items()}


schedules = [
    Schedule(ALL, f"*/{EVERY_S} * * * * *", send, missed="all"),
    Schedule("run", "* * * * * *", send, missed="run"),
]
