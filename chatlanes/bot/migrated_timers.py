"""The timers of a group that has become a supergroup, which is another chat with another id.

Both messages about it move the timers to the new chat, in the step that settles the message, and record its id. A timer
of the old chat that had fired before, or is set after it, is found by this record when its run begins: instead, it is
set again for the new chat, in the step that settles it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from chatlanes.bot.session.stored import Stored
from chatlanes.bot.timers import KIND, TimerPlan, content_of, described, due_of, id_prefix, is_timer, json_of
from chatlanes.lanes.protocol.commands import MoveTimer, Set, SetTimer, Write
from chatlanes.lanes.protocol.replies import StoredTimer
from chatlanes.lanes.worker.delivery import Delivery
from chatlanes.updates import number, part, queue_of
from chatlanes.updates.intake import pack_update

#: <bot id>/<id of a group>: string: the id of its supergroup
MIGRATED = "migrated:"
#: The ids of groups are above this one, and those of supergroups below it (https://core.telegram.org/api/bots/ids).
_LEAST_GROUP = -1_000_000_000_000


class Migration(NamedTuple):
    """The chat ids of a group and of its supergroup."""

    old: int
    new: int

    def rename(self, key: str) -> str:
        """The owner or lane of the supergroup for that of the group; others stay as they are."""
        bot, slash, chat = key.rpartition("/")
        return f"{bot}/chat:{self.new}" if slash and chat == f"chat:{self.old}" else key

    def readdress(self, content: dict[str, Any]) -> bytes:
        """The stored form of a timer's message, for the new chat."""
        body = dict(part(content, KIND))
        body["chat"] = {"id": self.new, "type": "supergroup"}
        if part(body, "sender_chat").get("id") == self.old:  # an anonymous administrator
            body["sender_chat"] = {"id": self.new}
        return pack_update(described(KIND, self.new), json_of({KIND: body}))


def stage_moves(migration: Migration, stored: Stored, plan: TimerPlan) -> None:
    """Move the timers of the old chat when the update is settled, and record the new one. Raises ParkUpdate."""
    owner = f"{stored.bot_id}/chat:{migration.old}"
    timers = stored.ask(lambda store: store.timers(owner))
    stored.stage_first(_moves(migration, stored.bot_id, timers, plan))


def _moves(migration: Migration, bot_id: str, timers: Iterable[StoredTimer], plan: TimerPlan) -> list[Write]:
    writes: list[Write] = [Set(_record_key(bot_id, migration.old), str(migration.new).encode())]
    for timer, content in ((timer, content_of(timer)) for timer in timers):
        if not is_timer(content):  # the timeout of a conversation, which is one of the old chat
            continue
        lanes, queue = _place(migration, timer.lanes, plan)
        to, stored = migration.rename(timer.owner), migration.readdress(content)
        writes.append(MoveTimer(timer.owner, timer.name, timer.id, to, queue or timer.queue, stored, lanes))
    return writes


def set_again(update: dict[str, Any], delivery: Delivery, plan: TimerPlan) -> SetTimer | None:
    """The write that sets a timer that has fired again, if its chat has become a supergroup: for the new chat, due at
    once. None: it runs now. Also if an earlier run has made calls, because they would be repeated.

    Its message id is its name until then, so that it replaces no timer of the new chat. Raises LeaseLost and RedisAway.
    """
    chat = number(part(part(update, KIND), "chat").get("id"))
    if not is_timer(update) or chat is None or not _LEAST_GROUP < chat < 0:
        return None
    message_id = delivery.id
    bot_id, due = message_id.partition(":")[0], due_of(message_id)
    found = delivery.read([_record_key(bot_id, chat)])
    if found.values[0] is None or delivery.has_made_calls():
        return None
    migration = Migration(chat, int(found.values[0]))
    owner, (new_lanes, queue) = f"{bot_id}/chat:{migration.new}", _place(migration, found.lanes, plan)
    at_ms = None if due is None else round(due.timestamp() * 1000)
    stored = migration.readdress(update)
    return SetTimer(owner, message_id, id_prefix(bot_id), queue, stored, at_ms, lanes=new_lanes)


def _record_key(bot_id: str, chat: int) -> str:
    return f"{MIGRATED}{bot_id}/{chat}"


def _place(migration: Migration, lanes: list[str], plan: TimerPlan) -> tuple[list[str], str]:
    """The lanes for the new chat, and their queue; empty: the queue stays the same."""
    known = [lane for lane in lanes if lane]
    renamed = [migration.rename(lane) for lane in known]
    if renamed == known:
        return renamed, ""
    key = renamed[0].partition("/")[2]
    return renamed, queue_of([key], 0, plan.queues, plan.queue_group)
