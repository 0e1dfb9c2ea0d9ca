"""MAX_AGE: messages that have waited too long are skipped, or those of one sender are collected into one run.

Only what people write is ever late: never a payment, an update of CONTROL, or a service message. An update whose run
has begun is never skipped, and nothing is collected into it, so a rerun has the same updates as the run before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import celery_lanes as lanes
from celery_lanes.protocol import keys, plain
from celery_lanes.worker.gathering import followers, gather
from chatlanes.bot.calls.journal import JournaledCall
from chatlanes.bot.context import Context
from chatlanes.settings import Settings
from chatlanes.updates.collecting import CONTENT, GroupName, naming
from chatlanes.updates.intake import TASK
from chatlanes.updates.parsing import number, parse, read
from chatlanes.updates.routing import NEW_MESSAGES, KeysError, controlling, is_urgent

#: The place of a note in the journal of a message: its first run began late.
LATE = "late/1"

WRITTEN = NEW_MESSAGES | {"edited_message", "edited_channel_post", "edited_business_message"}


class Served(Protocol):
    """The properties of a bot that are used here (ServedBot)."""

    @property
    def settings(self) -> Settings: ...

    @property
    def stops(self) -> Callable[[dict[str, Any]], bool] | None: ...


def check(served: Served) -> None:
    """Call at start: a function that cannot be loaded would fail each late update. Raises ImportPathError."""
    controlling(served.settings.control)
    if served.settings.max_age_action == "collect":
        _naming(served)


def is_late_run(served: Served, delivery: lanes.Delivery, updates: Sequence[dict[str, Any]]) -> bool:
    """True if the run counts as late: all its updates have waited longer than MAX_AGE, or have been collected because
    they had. If an earlier run has made calls, its value is kept: the handler makes the same calls.
    """
    if delivery.is_gathered:
        return True
    is_old = is_late(served, updates, delivery.age_s)
    if not (is_old or delivery.is_replayed):  # a replay begins at age 0, with the journal of the runs before
        return False
    places = _places(delivery)
    return LATE in places or (is_old and not places)


def note(delivery: lanes.Delivery) -> None:
    """Record that this run is late, so that a run after a crash is late too. It is recorded as a refused call, which
    `previous_calls` and `has_made_calls` leave out.
    """
    JournaledCall(delivery.journal, "late", LATE, "late", "repeat").refused(None)


def _places(delivery: lanes.Delivery) -> set[str]:
    """The places of calls that earlier runs have made, without interrupted runs; LATE, if it was noted."""
    asked = plain("HKEYS", keys.journal(delivery.id))
    found: Any = delivery.journal.retry_until_done(lambda: delivery.lanes.store.run(asked))
    return {place for each in found if (place := each.decode())[-1:].isdigit() and " " not in place}


def is_late(served: Served, updates: Sequence[dict[str, Any]], age_s: float) -> bool:
    """True if all these updates, the first of which is `age_s` old, have waited longer than MAX_AGE."""
    max_age_s = served.settings.max_age
    if max_age_s is None or age_s <= max_age_s or not all(_can_be_late(served, each) for each in updates):
        return False
    # The clock of Telegram says how much later the others were written.
    dates = [*map(_date, updates)]
    return len(dates) == 1 or (0 not in dates and age_s - (max(dates) - dates[0]) > max_age_s)


def is_waiting(ctx: Context, delivery: lanes.Delivery) -> bool:
    """True if no run of the update has begun, and it is not the answer to a question, which the bot waits for."""
    again = ctx.attempt > 1 or delivery.is_replayed or delivery.interrupted or delivery.is_stopped
    if again or delivery.note or delivery.is_marked:
        return False
    asked = plain("HEXISTS", keys.message(delivery.id), "taken")
    has_taken = delivery.journal.retry_until_done(lambda: delivery.lanes.store.run(asked))
    return not has_taken and not _places(delivery) - {LATE}


def collect(served: Served, ctx: Context, delivery: lanes.Delivery) -> bool:
    """Collects the late messages of the same sender that follow directly. True if there are any. Raises LeaseLost."""
    name_of = _naming(served)
    name = _name(name_of, ctx.updates[0])
    room = served.settings.collect_max - len(ctx.updates)
    if name is None or room < 1 or not is_waiting(ctx, delivery):
        return False
    behind = []
    for follower in followers(delivery, room):
        if follower.task != TASK:
            break
        updates = [*_updates(follower.bodies)]
        room -= len(updates)
        is_same = all(_name(name_of, each) == name for each in updates)
        if room < 0 or not is_same or not is_late(served, updates, follower.age_s):
            break
        behind.append(follower)
    if behind:
        gather(delivery, behind)
    return bool(behind)


def _naming(served: Served) -> GroupName:
    own = served.settings.collect
    return naming(own if ":" in own else "messages")


def _can_be_late(served: Served, update: dict[str, Any]) -> bool:
    parsed = parse(update)
    if parsed.kind not in WRITTEN or CONTENT.isdisjoint(parsed.body) or is_urgent(parsed):
        return False
    return served.stops is None or not served.stops(update)


def _name(name_of: GroupName, update: dict[str, Any]) -> str | None:
    try:
        return name_of(update, parse(update))
    except KeysError:  # it was buried when it was appended, or COLLECT was changed since
        return None


def _date(update: dict[str, Any]) -> int:
    """When it was written or edited, by Telegram's clock; 0: unknown."""
    body = parse(update).body
    return number(body.get("edit_date")) or number(body.get("date")) or 0


def _updates(bodies: Sequence[str]) -> Iterator[dict[str, Any]]:
    """An empty one if it is none: a task that was published into the lane by hand."""
    for body in bodies:
        try:
            yield read(body.encode())[0][0]
        except (ValueError, LookupError, TypeError):
            yield {}
