"""Reads the state of the lanes: lanes, queues, records of messages, counters.

Guarantees that it changes nothing, and that each read is small enough not to delay other clients. Does not return a
snapshot: the state may change between two reads.
"""

from __future__ import annotations

import json
from ast import literal_eval
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Any, NamedTuple, cast

from redis import Redis

from celery_lanes.leases import BOUNDS_S, LONGER, LOST, RUNS, SUM, times_field
from celery_lanes.protocol import Loss, keys
from celery_lanes.protocol.admin_verbs import read_loss
from celery_lanes.protocol.envelope import split

#: Records fetched in one round trip.
_AT_ONCE = 500
#: Longer than the first line of a stored message, which describes it: Celery shortens args and kwargs to 1,024
#: characters each, of up to 4 bytes.
_FIRST_LINE = 16_383

_FIELDS = ("state", "queue", "lanes", "seq", "fence", "holder", "failed", "died", "replayed", "parked", "size", "turn")

#: The buckets of a histogram, by their upper bounds.
_PLACES = {name: place for place, name in enumerate((*map(str, BOUNDS_S), LONGER))}


@dataclass(frozen=True, slots=True)
class Record:
    """The record of a message. Times are those of Redis, µs since 1970."""

    id: str
    state: str
    queue: str
    lanes: tuple[str, ...]
    appended_us: int  # or replayed
    moved_us: int  # last hand-out or take-back; 0: never
    holder: str  # host:pid:… of the worker's main process; empty: not leased
    failed: int
    died: int
    is_replayed: bool
    parked: str  # why it was postponed without a failure, the last time; empty: it was not
    size: int = 1  # how many messages are one run
    has_turn: bool = False  # it is over its rate, and waits for its turn
    is_paced: bool = False  # one of its lanes has a rate
    limits: tuple[str, ...] = ()  # their keys

    @property
    def group(self) -> str:
        return keys.group_of(self.queue)

    @property
    def in_lanes(self) -> tuple[str, ...]:
        """The lanes and limits, named as in `paused`."""
        return tuple(f"lane:{key}" for key in (*self.lanes, *self.limits))

    @property
    def attempt(self) -> int:
        """The number of the current or next attempt."""
        return self.failed + self.died + 1


@dataclass(frozen=True, slots=True)
class Settled:
    """How many messages of each queue were ever settled, and when this was read."""

    at_us: int
    by_queue: dict[str, int]


class WaitingTimers(NamedTuple):
    """How many timers wait. `due_s`: until the next one is due; below 0: so late is it; None: there is none."""

    waiting: int = 0
    due_s: float | None = None

    @property
    def late_s(self) -> float:
        return max(0.0, -(self.due_s or 0.0))  # the other way round, max returns -0.0


@dataclass
class Histogram:
    """`buckets`: the count of each bucket; the last one counts times above the last of BOUNDS_S."""

    buckets: list[int] = field(default_factory=lambda: [0] * len(_PLACES))
    sum_s: float = 0.0

    def since(self, earlier: Histogram) -> Histogram:
        """The difference to an earlier histogram."""
        buckets = [now - then for now, then in zip(self.buckets, earlier.buckets, strict=True)]
        return Histogram(buckets, self.sum_s - earlier.sum_s)

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """(upper bound, how many took at most that long), as in Prometheus."""
        return zip(_PLACES, accumulate(self.buckets), strict=True)

    def median_s(self) -> float | None:
        """The estimated median: times are assumed to be evenly distributed in a bucket. None if there are none."""
        half = sum(self.buckets) / 2
        lower_s, before = 0.0, 0
        for upper_s, n in zip((*BOUNDS_S, BOUNDS_S[-1]), self.buckets, strict=True):
            if n > 0 and before + n >= half:
                return lower_s + (upper_s - lower_s) * (half - before) / n
            lower_s, before = upper_s, before + n
        return None


def settled(client: Redis) -> Settled:
    found: Any = client.hgetall(keys.SETTLED)
    return Settled(now_us(client), {queue.decode(): _number(count) for queue, count in found.items()})


def now_us(client: Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * 1_000_000 + int(micros)


def records(client: Redis, ids: Iterable[str]) -> Iterator[Record]:
    """The records of these messages that still exist, in this order."""
    rest = iter(ids)
    while batch := list(islice(rest, _AT_ONCE)):
        with client.pipeline(transaction=False) as pipe:
            for message_id in batch:
                pipe.hmget(keys.message(message_id), *_FIELDS)
            for message_id, fields in zip(batch, pipe.execute(), strict=True):
                if fields[0] is not None:
                    yield _record(message_id, [(value or b"").decode(errors="replace") for value in fields])


def groups(client: Redis) -> list[str]:
    """All groups of queues with pending messages, including those that no worker reads."""
    names = client.scan_iter(f"{keys.PENDING}*", count=1000)
    return sorted({name.decode().removeprefix(keys.PENDING) for name in names})


def pending(client: Redis, group: str, most: int) -> list[str]:
    """The ids of the messages that are not buried, the oldest first."""
    return _texts(client.zrange(keys.pending(group), 0, most - 1))


def oldest_us(client: Redis, group: str) -> int | None:
    """When the oldest message of a group was appended, or replayed."""
    found: Any = client.zrange(keys.pending(group), 0, 0, withscores=True)
    return int(found[0][1]) if found else None


def in_lane(client: Redis, key: str, most: int) -> tuple[list[str], int]:
    """The ids in a lane, the oldest first, and their total number. Those of a limit of this key follow: the messages
    that have a permit, and those that wait for one.
    """
    limit = keys.LIMIT + key
    found = cast("list[bytes]", client.zrange(keys.lane(key), 0, most - 1))
    found += cast("list[bytes]", client.zrevrangebyscore(limit, "(0", "-inf"))
    found += cast("list[bytes]", client.zrangebyscore(limit, "(0", "+inf", 0, most))
    return _texts(found[:most]), int(client.zcard(keys.lane(key))) + int(client.zcard(limit))


def dead(client: Redis) -> dict[str, int]:
    """Message id -> when it was buried, ms; in this order."""
    found: Any = client.zrange(keys.DEAD, 0, -1, withscores=True)
    return {message_id.decode(): int(at_ms) for message_id, at_ms in found}


def lease_ends_ms(client: Redis, most: int) -> dict[str, float]:
    """Message id -> when its lease ends; the first to end come first."""
    found: Any = client.zrange(keys.LEASES, 0, most - 1, withscores=True)
    return {message_id.decode(): float(at_ms) for message_id, at_ms in found}


def delayed(client: Redis) -> int:
    """The number of delayed messages."""
    return int(client.zcard(keys.DELAYED))


def timers(client: Redis) -> WaitingTimers:
    waiting, first = client.zcard(keys.TIMERS), cast("list[Any]", client.zrange(keys.TIMERS, 0, 0, withscores=True))
    return WaitingTimers(int(waiting), first[0][1] / 1000 - now_us(client) / 1e6 if first else None)


def problems(client: Redis, message_id: str) -> list[dict[str, Any]]:
    """The problem that was recorded for each failure, the latest one last."""
    return [json.loads(problem) for problem in client.lrange(keys.errors(message_id), 0, -1)]


def journal(client: Redis, message_id: str) -> list[tuple[str, str, str]]:
    """(position, state, name) of each call that a message has begun, in order; without arguments and results."""
    found: Any = client.hgetall(keys.journal(message_id))
    calls = [(position.decode(), *noted.decode(errors="replace").split(" ", 3)) for position, noted in found.items()]
    # One without a colon is a note of the app, not a call.
    noted = [(each[0], each[1], each[3].partition(":")[0]) for each in calls if len(each) > 3 and ":" in each[3]]
    return sorted(noted, key=lambda call: (call[0].rstrip("0123456789"), len(call[0]), call[0]))


def titles(client: Redis, ids: Sequence[str], own: str = "") -> dict[str, str]:
    """A short description of each message: its task and arguments, as Celery shortens them. For the task `own`, only
    its arguments.
    """
    with client.pipeline(transaction=False) as pipe:
        for message_id in ids:
            pipe.getrange(keys.body(message_id), 0, _FIRST_LINE)
        return {each: _title(stored, own) for each, stored in zip(ids, pipe.execute(), strict=True)}


def contents(client: Redis, message_id: str) -> list[Any]:
    """The first argument of the task of each message of a group, the oldest first; None for one that cannot be read."""
    return [content_of(each) for each in _stored(client, message_id)]


def calls(client: Redis, message_id: str, own: str = "") -> list[Any]:
    """`call_of` each message of a group, the oldest first."""
    return [call_of(each, own) for each in _stored(client, message_id)]


def content_of(stored: bytes) -> Any:
    """The first argument of a task in its stored form; None if it cannot be read."""
    line, newline, body = stored.partition(b"\n")
    try:
        return json.loads(body if newline else line)[0][0]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def call_of(stored: bytes, own: str = "") -> Any:
    """The task and its arguments; for the task `own`, only its first argument. Arguments that are not JSON are shown as
    Celery shortens them. None if it cannot be read.
    """
    headers = _headers(stored)
    if not headers.get("task") or headers["task"] == own:
        return content_of(stored)
    args, kwargs = headers.get("argsrepr", "()"), headers.get("kwargsrepr", "{}")
    with suppress(ValueError, RecursionError):
        body = json.loads(stored.partition(b"\n")[2])
        args, kwargs = body[:2] if isinstance(body, list) and len(body) > 1 else (args, kwargs)
    return {"task": headers["task"], "args": args, "kwargs": kwargs}


def paused(client: Redis) -> dict[str, int]:
    """`lane:<key>`, `queue:<name>` or `group:<name>` -> since when it is paused, ms."""
    found: Any = client.hgetall(keys.PAUSED)
    return {what.decode(): _number(at_ms) for what, at_ms in found.items()}


def losses(client: Redis) -> list[Loss]:
    """The losses that are not acknowledged, the earliest first."""
    found: Any = client.hvals(keys.LOSSES)
    return sorted(loss for record in found if not (loss := read_loss(record)).is_acknowledged)


def workers(client: Redis) -> dict[str, int]:
    """host:pid:… of each worker that has swept within a lease -> its slots. Includes workers that stopped since."""
    alive: Any = client.zrangebyscore(keys.WORKERS, now_us(client) / 1000, "+inf")
    named = (member.decode().rpartition(" ") for member in alive)
    return {holder: _number(slots) for holder, _, slots in named}


def parked(client: Redis) -> dict[tuple[str, str], tuple[int, float]]:
    """(kind, group of queues) -> how many messages were parked, and the sum of their delays in seconds."""
    found: Any = client.hgetall(keys.PARKED)
    by = {tuple(name.decode().split(" ", 2)): _number(n) for name, n in found.items()}
    return {
        (kind, group): (n, by.get(("ms", kind, group), 0) / 1000)
        for (what, kind, group), n in by.items()
        if what == "times"
    }


def times(client: Redis) -> dict[tuple[str, str], Histogram]:
    """(WAIT, RUN or RECOVERY, group of queues) -> histogram. Skips bounds of other versions."""
    stored: Any = client.hgetall(keys.TIMES)
    found: dict[tuple[str, str], Histogram] = {}
    for field_, n in stored.items():
        what, bound, group = field_.decode().split(" ", 2)
        if what == LOST:
            continue
        histogram = found.setdefault((what, group), Histogram())
        if bound == SUM:
            histogram.sum_s = _number(n) / 1e6
        elif bound in _PLACES:
            histogram.buckets[_PLACES[bound]] += _number(n)
    return found


def lost_runs(client: Redis, group: str) -> int:
    """How many runs lost their lease before they ended."""
    return _number(client.hget(keys.TIMES, times_field(LOST, RUNS, group)) or b"")


def counts(client: Redis) -> dict[str, int]:
    found: Any = client.hgetall(keys.COUNTS)
    return {name.decode(): _number(value) for name, value in found.items()}


def _record(message_id: str, fields: list[str]) -> Record:
    state, queue, lanes, seq, fence, holder, failed, died, replayed, parked, size, turn = fields
    return Record(
        id=message_id,
        state=state,
        queue=queue,
        lanes=tuple(keys.lane_keys(lanes)),
        is_paced=keys.PACED in lanes,
        limits=tuple(keys.limit_keys(lanes)),
        appended_us=_number(seq),
        moved_us=_number(fence),
        holder=holder,
        failed=_number(failed),
        died=_number(died),
        is_replayed=bool(replayed),
        parked=parked,
        size=_number(size) or 1,
        has_turn=bool(turn),
    )


def _number(stored: str | bytes) -> int:
    """0 if it is empty or cannot be read."""
    try:
        return int(float(stored))
    except (ValueError, OverflowError):
        return 0


def _stored(client: Redis, message_id: str) -> list[bytes]:
    found: Any = client.get(keys.body(message_id)) or b""
    return split(found)


def _title(stored: bytes, own: str) -> str:
    headers = _headers(split(stored)[0])
    task, args = str(headers.get("task", "")), str(headers.get("argsrepr", ""))
    if task in ("", own):
        return args.strip("()")
    args = args[1:].removesuffix("]" if args.startswith("[") else ")").removesuffix(",")
    try:
        kwargs = ", ".join(f"{name}={value!r}" for name, value in literal_eval(headers["kwargsrepr"]).items())
    except (ValueError, LookupError, TypeError, AttributeError, SyntaxError, RecursionError, MemoryError):
        kwargs = str(headers.get("kwargsrepr", ""))[1:].removesuffix("}")  # shortened
    return f"{task}({', '.join(filter(None, [args, kwargs.replace('Ellipsis', '...')]))})"


def _headers(stored: bytes) -> dict[str, Any]:
    """Empty if it cannot be read."""
    try:
        return dict(json.loads(stored.partition(b"\n")[0])["headers"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return {}


def _texts(values: Any) -> list[str]:
    return [value.decode() for value in values]
