"""The verbs of people: dead letters, pauses, purges, losses of data, moves of a backlog. Their commands and answers.

Guarantees that each verb is one atomic step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Literal, NamedTuple

from celery_lanes.protocol.messages import NewMessage, append_row, problem_json, timer_key
from celery_lanes.protocol.scripts import Argument, Command, verb
from celery_lanes.protocol.verbs import History, history_of

#: A script that processes more in one step would delay other clients.
PURGE_LIMIT = 100

#: The messages of a lane key, a queue, or a group of queues can be paused.
Pausable = Literal["lane", "queue", "group"]


def replay(message_id: str) -> Command[bool]:
    """Puts a buried message at the end of its lanes; False if no such message is buried."""
    return verb("replay", bool, id=message_id)


def drop(message_id: str) -> Command[bool]:
    """Deletes a buried message; False if no such message is buried."""
    return verb("drop", bool, id=message_id)


def pause(what: Pausable, name: str) -> Command[bool]:
    """Stops handing out its messages. Running ones continue, new ones wait. False if it was paused already."""
    return verb("pause", bool, what=what, named=name)


def resume(what: Pausable, name: str, queues: Sequence[str] = ()) -> Command[bool]:
    """Hands out its messages again. Workers of `queues` are woken. False if it was not paused."""
    return verb("resume", bool, keys=queues, what=what, named=name)


def purge(queue: str) -> Command[int]:
    """Buries some of the ready messages of a queue; returns how many. 0: none are left."""
    problem = problem_json({"type": "Purged", "message": f"queue {queue} was purged"})
    return verb("purge", int, keys=[queue], limit=PURGE_LIMIT, problem=problem)


def rights() -> Command[list[str]]:
    """The commands of the scripts that this user of Redis may not use."""
    return verb("rights", lambda names: [name.decode() for name in names])


# -- losses of data (data_loss.py)


class Loss(NamedTuple):
    """Of all messages ever appended, `first` to `last` are gone; none if `last` is below `first`. `pending` messages
    were pending when last checked, and `again` settled messages are pending again.
    """

    at_ms: int
    first: int
    last: int
    pending: int
    again: int
    is_acknowledged: bool


def read_loss(record: bytes) -> Loss:
    at_ms, first, last, ended, again, acknowledged = map(int, record.split())
    return Loss(at_ms, first, last, max(last - ended, 0), again, bool(acknowledged))


def look() -> Command[History]:
    """The identity of this database and its totals."""
    return verb("look", history_of)


def lose(known: History, found: History) -> Command[tuple[str, Loss]]:
    """Records that `found` is another database than `known`, or an older state of it.

    Returns the identity of the database now, and the loss.
    """
    return verb(
        "lose",
        lambda answer: (answer[0].decode(), read_loss(answer[1])),
        known=known.identity,
        appended=known.appended,
        settled=known.settled,
        ended=known.appended - known.pending,
        found=found.identity,
        found_appended=found.appended,
        found_settled=found.settled,
    )


def acknowledge_losses() -> Command[list[Loss]]:
    """Marks every loss as seen by a person; returns those that were not marked before."""
    return verb("acknowledge", lambda records: [read_loss(record) for record in records])


# -- moving in and out


class Element(NamedTuple):
    """An element of an ordinary list, as the list has it, and the message that it becomes: with `timer` (its owner and
    its name) one that joins its lanes at `at_ms` since 1970.
    """

    stored: bytes
    message: NewMessage
    timer: tuple[str, str] | None = None
    at_ms: int = 0


class Adopted(Enum):
    """The outcome for one element."""

    NOT_THERE = 0  # it is not between the indexes, or another client has taken it
    MOVED = 1
    SCHEDULED = 2
    KNOWN = 3  # removed, because a message or a timer with its id waits


def adopt(name: str, elements: Iterable[Element], *, first: int, last: int) -> Command[list[Adopted]]:
    """Moves elements of a list into lanes, the oldest one first: those between these indexes from its end (-1 is the
    last one). Each element is in one of the two at any moment.

    Raises PublishRefused for a message that a worker could not lease.
    """

    def row(element: Element) -> tuple[Argument, ...]:
        id_, queue, stored, *_, lanes = append_row(element.message)
        timer = timer_key(*element.timer) if element.timer else ""
        return element.stored, timer, element.at_ms, id_, queue, stored, lanes

    def read(answer: list[int]) -> list[Adopted]:
        return [Adopted(each) for each in answer]

    return verb("adopt", read, keys=[name], group=map(row, elements), first=first, last=last)


class Leaving(NamedTuple):
    """A message as it is stored, and the element that an ordinary list gets for it. `timer`: its owner and its name, if
    it is one.
    """

    id: str
    stored: bytes
    element: bytes
    timer: tuple[str, str] | None = None


def move_out(name: str, messages: Iterable[Leaving]) -> Command[list[bool]]:
    """Moves messages from their lanes to a list, the oldest one first: each is in one of the two at any moment. Returns
    which were moved. Others are leased, wait behind those that stay, are groups, or have changed.
    """

    def read(answer: list[int]) -> list[bool]:
        return [moved == 1 for moved in answer]

    rows = [(each.id, timer_key(*each.timer) if each.timer else "", each.stored, each.element) for each in messages]
    return verb("move_out", read, keys=[name], group=rows)
