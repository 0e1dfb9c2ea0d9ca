"""The verbs of timers and schedules: the command and the answer of each.

Guarantees that each verb is one atomic step, and that an occurrence of a schedule is appended once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from celery_lanes.errors import UnknownVersion, unknown_texts
from celery_lanes.protocol import keys
from celery_lanes.protocol.messages import NewMessage, append_row, joined_lanes, timer_key
from celery_lanes.protocol.scripts import Command, verb


class StoredTimer(NamedTuple):
    """A message that joins the end of its lanes when it is due, at `at_ms` since 1970."""

    owner: str
    name: str
    at_ms: int
    id: str
    queue: str
    lanes: list[str]
    stored: bytes


def schedule(
    message: NewMessage,
    owner: str,
    name: str,
    *,
    at_ms: int | None = None,
    in_ms: int = 0,
    replaces: bool = True,
) -> Command[bool]:
    """Sets the timer of this owner and name: the message joins the end of its lanes at `at_ms` (ms since 1970), or
    if that is None in `in_ms`. False: the message was seen before, or the timer is set and `replaces` is false.

    Raises PublishRefused for a message that a worker could not lease, and ValueError for an owner or name with
    control characters.
    """
    id_, queue, stored, scope, number, *_, lanes = append_row(message._replace(group=None))
    return verb(
        "schedule",
        bool,
        timer=timer_key(owner, name),
        id=id_,
        queue=queue,
        lanes=lanes,
        stored=stored,
        at_ms="" if at_ms is None else at_ms,
        in_ms=in_ms,
        scope=scope,
        number=number,
        replaces=int(replaces),
        seen_ttl_s=keys.SEEN_TTL_S,
        seen_block=keys.SEEN_BLOCK,
        after_run=int(message.after_run),
    )


def cancel(owner: str, name: str) -> Command[bool]:
    """Removes a timer that is not due yet; False if there is none."""
    return verb("cancel", bool, timer=timer_key(owner, name))


def timers_of(owners: Sequence[tuple[str, str]]) -> Command[tuple[list[tuple[str, str]], list[StoredTimer]]]:
    """Timers of owners, each with a cursor, first "0". Returns the owners of which more are left, with their next
    cursors, and the timers that were found. Raises UnknownVersion.
    """

    def read(answer: list[Any]) -> tuple[list[tuple[str, str]], list[StoredTimer]]:
        cursors, unknown_version, *flat = answer
        if unknown_version:
            raise UnknownVersion(f"a timer {unknown_texts(unknown_version)}")
        left = [(owner, cursor.decode()) for (owner, _), cursor in zip(owners, cursors, strict=True) if cursor]
        return left, _timers(flat)

    return verb("timers_of", read, group=owners)


def _timers(answer: list[bytes]) -> list[StoredTimer]:
    return [
        StoredTimer(owner, name, int(at_ms), id_, queue, keys.lane_keys(lanes), stored)
        for *texts, stored in zip(*[iter(answer)] * 7, strict=True)
        for owner, name, at_ms, id_, queue, lanes in [[each.decode() for each in texts]]
    ]


def advance(
    owner: str,
    name: str,
    *,
    known: bytes,
    record: bytes,
    until_ms: int = 0,
    messages: Sequence[NewMessage] = (),
) -> Command[bool]:
    """Appends the messages of a schedule's occurrences up to `until_ms`, and replaces its record, in one step. False:
    nothing was changed (lua/advance.lua). An empty `record` removes the schedule.
    """
    rows = [(each.id, each.queue, each.stored, joined_lanes(each.lanes)) for each in messages]
    schedule = timer_key(owner, name)
    return verb("advance", bool, group=rows, schedule=schedule, known=known, record=record, until_ms=until_ms)
