"""Moves the messages of an ordinary queue of kombu into lanes, while workers and publishers use it.

Guarantees that each message is in its list or in its lanes at any moment, even if Redis, a worker or this process dies,
and that one that cannot have lane keys stays where it is. The messages of a list join their lanes in its order; lists
of higher priority go first. Does not keep an order between them and messages that are published into the lanes
meanwhile.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from celery import Celery
from kombu.serialization import prepare_accept_content
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps, loads

from celery_lanes.errors import PublishRefused
from celery_lanes.protocol import Adopted, Element, envelope
from celery_lanes.transport import publish
from celery_lanes.transport.routing import is_lane_queue, keys_of, lane_of

#: Elements that are read and moved in one step. A longer step would delay other clients.
AT_ONCE = 100
#: How long workers may take to answer what they hold.
ANSWER_WITHIN_S = 2.0
#: The options of a message that name its queue.
_DESTINATION = ("queue", "exchange", "routing_key")


class StaysError(Exception):
    """Why a message stays where it is. `is_problem`: it belongs in a lane, or cannot be judged."""

    def __init__(self, reason: str, *, is_problem: bool = True) -> None:
        super().__init__(reason)
        self.reason, self.is_problem = reason, is_problem


class Wanted(NamedTuple):
    """Keys instead of those that lanes declare, only these tasks, and one queue instead of those of the tasks."""

    lane: Sequence[str] = ()
    tasks: Collection[str] = ()
    to: str | None = None


class Task(NamedTuple):
    """The task that a message runs, its arguments, and what follows: the rest of a chain, callbacks, a chord."""

    name: str
    args: Sequence[Any]
    kwargs: dict[str, Any]
    following: dict[str, Any]


class Unacknowledged(NamedTuple):
    """A message that a worker has taken and not acknowledged."""

    taken_s: float  # since 1970
    tag: str
    id: str


@dataclass
class Tally:
    """The outcome for the messages, real or (dry) expected. `stays` is of the last pass over each list."""

    #: task and queue of its lanes -> how many
    moved: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: How many of these join their lanes at their eta.
    scheduled: int = 0
    #: How many are removed, because messages with their ids wait already.
    known: int = 0
    #: list -> its messages that stay: why, whether that is a problem, and where: -1 is the next one for a worker
    stays: dict[str, list[tuple[StaysError, int]]] = field(default_factory=dict)

    @property
    def gone(self) -> int:
        return self.moved.total() + self.known


class Adoption:
    """The move of a queue, with the lists of its priorities."""

    def __init__(self, app: Celery, queue: str, wanted: Wanted) -> None:
        self.app, self.queue, self.wanted = app, queue, wanted
        self.channel: Any = app.connection_for_write().channel()
        self.store = app.lanes.store
        self.tally = Tally()
        self._is_lane_queue = app.amqp.queues.is_lane_queue(queue)
        self._accept = prepare_accept_content(app.conf.accept_content)

    @property
    def lists(self) -> list[str]:
        """In the order in which workers read them."""
        return [self.channel._q_for_pri(self.queue, each) for each in self.channel.priority_steps]

    def size(self) -> int:
        return sum(self.store.client.llen(name) for name in self.lists)

    # -- the lists

    def run(self, *, dry: bool = False) -> None:
        """Moves the messages of each list, also those that are published before its beginning is reached. With `dry`,
        only counts them.
        """
        for name in self.lists:
            while not self._run(name, dry=dry):
                pass

    def _run(self, name: str, *, dry: bool) -> bool:
        """From the end of a list to its beginning. False: workers have taken messages meanwhile, so others have moved
        up and may have been left out.
        """
        stays = self.tally.stays[name] = []
        is_complete, passed, size = True, 0, AT_ONCE
        while size == AT_ONCE:
            first, last = -passed - AT_ONCE, -passed - 1
            found = self.store.client.lrange(name, first, last)
            moves = list[tuple[str, Element]]()
            for place, element in enumerate(reversed(found)):
                try:
                    moves.append(self._decided(element))
                except StaysError as error:
                    stays.append((error, -passed - place - 1 + (0 if dry else len(moves))))
            size, passed = len(found), passed + len(found) - (0 if dry else len(moves))
            elements = [element for _, element in moves]
            outcomes = _foreseen(elements) if dry else self.store.adopt(name, elements, first=first, last=last)
            self._count(moves, outcomes)
            is_complete = is_complete and Adopted.NOT_THERE not in outcomes
        return is_complete

    def _count(self, moves: Sequence[tuple[str, Element]], outcomes: Sequence[Adopted]) -> None:
        for (task, element), outcome in zip(moves, outcomes, strict=True):
            self.tally.known += outcome is Adopted.KNOWN
            self.tally.scheduled += outcome is Adopted.SCHEDULED
            if outcome in (Adopted.MOVED, Adopted.SCHEDULED):
                self.tally.moved[task, element.message.queue] += 1

    # -- a message

    def _decided(self, stored: bytes) -> tuple[str, Element]:
        """The name of its task, and where it goes. Raises StaysError."""
        if self._is_lane_queue and not stored.startswith(b"{"):
            raise StaysError("it is in its lanes already", is_problem=False)  # the id of a ready message
        try:
            message = loads(bytes_to_str(stored))
            headers, _ = dict(message["headers"]), message["properties"]["delivery_tag"]
        except Exception as error:
            raise StaysError("it is not a message of kombu") from error
        task = self._task(message)
        if self.wanted.tasks and task.name not in self.wanted.tasks:
            raise StaysError(f"{task.name} is not one of --task", is_problem=False)
        known = self.app.tasks.get(task.name)
        try:
            lane_keys = self._keys(task, known)
            queue = self._queue_of(task, known, lane_keys)
            message["headers"] = {**headers, **publish.key_headers(lane_keys)}
            self._leave_queues(task, message)
            new, at_ms = publish.row(queue, message), publish.due_ms(message)
        except StaysError:
            raise
        except PublishRefused as error:
            raise StaysError(str(error)) from error
        except Exception as error:  # any program may have written it
            raise StaysError(f"{task.name} cannot be moved: {type(error).__name__}: {error}") from error
        return task.name, Element(stored, new, None if at_ms is None else publish.timer_of(new.id), at_ms or 0)

    def _task(self, message: dict[str, Any]) -> Task:
        """Of protocol 2 or 1. Raises StaysError."""
        try:
            body = self.channel.Message(message, channel=self.channel, accept=self._accept).decode()
        except Exception as error:
            raise StaysError(f"its body cannot be read: {type(error).__name__}: {error}") from error
        try:
            if "task" in message["headers"]:
                args, kwargs, following = body
                return Task(message["headers"]["task"], tuple(args), dict(kwargs), dict(following or {}))
            return Task(body["task"], tuple(body.get("args") or ()), dict(body.get("kwargs") or {}), {})
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise StaysError("it is not a message of a task") from error

    def _keys(self, task: Task, known: Any) -> list[str]:
        """Raises StaysError, PublishRefused."""
        router: Any = self.app.amqp.router
        if self.wanted.lane:
            found = keys_of(self.wanted.lane, task.name, known, task.args, task.kwargs)
        else:
            found = router.keys(task.name, task.args, task.kwargs, {}, known)
        if found is None and known is None:
            raise StaysError(f"{task.name} is not a task of this app, and no route gives it a lane")
        if found is None:
            raise StaysError(f"{task.name} has no lane", is_problem=False)
        return found

    def _queue_of(self, task: Task, known: Any, lane_keys: list[str]) -> str:
        """The lane queue into which this app would publish the message."""
        if self.wanted.to is not None:
            return self.wanted.to
        router: Any = self.app.amqp.router
        of_task = known._get_exec_options() if known is not None else {}
        options = {name: of_task[name] for name in _DESTINATION if of_task.get(name)}
        options["headers"] = publish.key_headers(lane_keys)
        queue = router.route(options, task.name, task.args, task.kwargs, known).get("queue")
        is_for_lanes = queue is not None and is_lane_queue(queue)
        return str((queue if is_for_lanes else router.lane_queue()).name)

    def _leave_queues(self, task: Task, message: dict[str, Any]) -> None:
        """The tasks that follow and have a lane must not name an ordinary queue: it would refuse them. They go where
        their lane is. Raises StaysError if the body is not JSON.
        """
        refused = [each for each in _signatures(task.following) if self._is_refused(each)]
        if not refused:
            return
        if message.get("content-type") != envelope.JSON or message["headers"].get("compression"):
            raise StaysError(f"{refused[0]['task']} follows it, has a lane, and names the ordinary queue of before")
        for each in refused:
            each["options"] = {name: value for name, value in each["options"].items() if name not in _DESTINATION}
        body = dumps([task.args, task.kwargs, task.following])
        message["body"], _ = self.channel.encode_body(body, message["properties"].get("body_encoding"))

    def _is_refused(self, signature: dict[str, Any]) -> bool:
        name, options, router = signature["task"], signature["options"], self.app.amqp.router
        queue = options.get("queue") or options.get("routing_key")
        if not queue or router.queues.is_lane_queue(queue):
            return False
        known = self.app.tasks.get(name)
        route = router.lookup_route(name, (), {}, {}, known) if router.routes else None
        return lane_of(known) is not None or (route or {}).get("lane") is not None

    # -- messages that workers have taken and not acknowledged

    def unacknowledged(self) -> list[Unacknowledged]:
        """Those of the queue, the oldest one first."""
        client, found = self.store.client, list[Unacknowledged]()
        # A message that is taken after the first of these reads is left out; one that is acknowledged before the second
        # one has no time any more, and is not overdue.
        unacked = list(client.hscan_iter(self.channel.unacked_key, count=AT_ONCE))
        times = client.zrange(self.channel.unacked_index_key, 0, -1, withscores=True)
        taken_s = {tag.decode(): at_s for tag, at_s in times}
        for tag, stored in unacked:
            try:
                message, exchange, routing_key = loads(bytes_to_str(stored))
                message_id = message["headers"].get("id") or tag.decode()
                is_of_queue = self.queue in self.channel._lookup(exchange, routing_key)
            except Exception:  # noqa: S112 - any program may have written it
                continue
            if is_of_queue:
                found.append(Unacknowledged(taken_s.get(tag.decode(), inf), tag.decode(), message_id))
        return sorted(found)

    def overdue(self, found: Sequence[Unacknowledged]) -> list[Unacknowledged]:
        """Those that any worker with an ordinary queue would put back now, after the visibility timeout."""
        return [each for each in found if each.taken_s <= time.time() - self.channel.visibility_timeout]

    def abandoned(self, found: Sequence[Unacknowledged]) -> list[Unacknowledged]:
        """Those that no worker reports that answers. They were `found` before the workers are asked."""
        inspect = self.app.control.inspect(timeout=ANSWER_WITHIN_S)
        held = {_id_of(each) for ask in (inspect.active, inspect.reserved, inspect.scheduled) for each in _tasks(ask())}
        return [each for each in found if each.id not in held]

    def put_back(self, found: Sequence[Unacknowledged]) -> None:
        """To the end of the list, as kombu does after the visibility timeout: the oldest one is the next one. One that
        is acknowledged meanwhile is not put back.
        """
        for each in sorted(found, reverse=True):
            self.channel.qos.restore_by_tag(each.tag)


def _signatures(value: Any) -> Iterator[dict[str, Any]]:
    """Those in the part of a body that names what follows, at any depth."""
    if isinstance(value, dict) and isinstance(value.get("task"), str) and isinstance(value.get("options"), dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from _signatures(each)


def _foreseen(elements: Sequence[Element]) -> list[Adopted]:
    now_ms = time.time() * 1000
    return [Adopted.SCHEDULED if each.timer and each.at_ms > now_ms else Adopted.MOVED for each in elements]


def _tasks(replies: Any) -> Iterator[Any]:
    for tasks in (replies or {}).values():
        yield from tasks


def _id_of(task: dict[str, Any]) -> Any:
    """As `inspect scheduled` and the others answer it."""
    return task.get("request", task).get("id")
