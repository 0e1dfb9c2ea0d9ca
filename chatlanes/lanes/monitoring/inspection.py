"""Reads the lanes from outside: what waits where, and the record of each message.

Guarantees that it changes nothing, and that each read is small enough not to delay other clients. Does not give a
snapshot: the state may change between two reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson
from redis import Redis

from chatlanes.lanes.leases.timings import LOST, RUNS, field
from chatlanes.lanes.monitoring.histogram import Histogram, read_times
from chatlanes.lanes.protocol import keys
from chatlanes.lanes.protocol.replies import Loss, loss_answer

#: Records fetched in one round trip.
_AT_ONCE = 500
#: Of a stored message: its first line, which says what it is, is shorter.
_FIRST_LINE = 2047

_FIELDS = ("state", "queue", "lanes", "seq", "fence", "holder", "failed", "died", "replayed", "parked")


@dataclass(frozen=True, slots=True)
class Record:
    """What a message records of itself. Times are Redis' own, µs since 1970."""

    id: str
    state: str
    queue: str
    lanes: tuple[str, ...]
    appended_us: int  # or replayed
    moved_us: int  # when it was last handed out or taken back; 0: never
    holder: str  # host:pid:… of the worker's main process; empty: not leased
    failed: int
    died: int
    is_replayed: bool
    parked: str  # why it was put off, without a failure, the last time; empty: it was not

    @property
    def group(self) -> str:
        return keys.group_of(self.queue)

    @property
    def in_lanes(self) -> tuple[str, ...]:
        """As `paused` names them."""
        return tuple(f"lane:{key}" for key in self.lanes)

    @property
    def attempt(self) -> int:
        """The one that runs, or is to come."""
        return self.failed + self.died + 1


@dataclass(frozen=True, slots=True)
class Settled:
    """How many messages of each queue have ever been settled, and when that was looked at."""

    at_us: int
    by_queue: dict[str, int]


def settled(client: Redis) -> Settled:
    found: Any = client.hgetall(keys.SETTLED)
    return Settled(now_us(client), {queue.decode(): int(count) for queue, count in found.items()})


def now_us(client: Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * 1_000_000 + int(micros)


def records(client: Redis, ids: Iterable[str]) -> Iterator[Record]:
    """Those of these messages that there are still, in this order."""
    rest = iter(ids)
    while batch := list(islice(rest, _AT_ONCE)):
        with client.pipeline(transaction=False) as pipe:
            for message_id in batch:
                pipe.hmget(keys.message(message_id), *_FIELDS)
            for message_id, fields in zip(batch, pipe.execute(), strict=True):
                if fields[0] is not None:
                    yield _record(message_id, [(value or b"").decode() for value in fields])


def groups(client: Redis) -> list[str]:
    """Every group of queues in which something waits, whoever reads it."""
    names = client.scan_iter(f"{keys.PENDING}*", count=1000)
    return sorted({name.decode().removeprefix(keys.PENDING) for name in names})


def pending(client: Redis, group: str, most: int) -> list[str]:
    """The ids of what is not buried, the oldest first."""
    return _texts(client.zrange(keys.pending(group), 0, most - 1))


def oldest_us(client: Redis, group: str) -> int | None:
    """When the oldest message of a group was appended, or replayed."""
    found: Any = client.zrange(keys.pending(group), 0, 0, withscores=True)
    return int(found[0][1]) if found else None


def in_lane(client: Redis, key: str, most: int) -> tuple[list[str], int]:
    """The ids that stand in a lane, the oldest first, and how many there are."""
    return _texts(client.zrange(keys.lane(key), 0, most - 1)), int(client.zcard(keys.lane(key)))


def dead(client: Redis) -> dict[str, int]:
    """Message id -> when it was buried, ms; in the order of that."""
    found: Any = client.zrange(keys.DEAD, 0, -1, withscores=True)
    return {message_id.decode(): int(at_ms) for message_id, at_ms in found}


def leased(client: Redis, most: int) -> list[str]:
    """The ids of what runs, or ran where a worker has died, those first whose lease is over first."""
    return _texts(client.zrange(keys.LEASES, 0, most - 1))


def lease_ends_ms(client: Redis, most: int) -> dict[str, float]:
    """Message id -> when its lease ends; the first to end come first."""
    found: Any = client.zrange(keys.LEASES, 0, most - 1, withscores=True)
    return {message_id.decode(): float(at_ms) for message_id, at_ms in found}


def delayed(client: Redis) -> int:
    """How many are."""
    return int(client.zcard(keys.DELAYED))


def due_ms(client: Redis, message_id: str) -> int | None:
    """When a delayed message is due."""
    at_ms = client.zscore(keys.DELAYED, message_id)
    return None if at_ms is None else int(at_ms)


def problems(client: Redis, message_id: str) -> list[dict[str, Any]]:
    """What was written down for each failure, the last one last."""
    return [json.loads(problem) for problem in client.lrange(keys.errors(message_id), 0, -1)]


def journal(client: Redis, message_id: str) -> list[tuple[str, str, str]]:
    """(position, state, name) of each call that a message has begun, in their order; nothing of what they say."""
    found: Any = client.hgetall(keys.journal(message_id))
    calls = [(position.decode(), *noted.decode(errors="replace").split(" ", 3)) for position, noted in found.items()]
    noted = [(each[0], each[1], each[3].partition(":")[0]) for each in calls if len(each) > 3]
    return sorted(noted, key=lambda call: (call[0].rstrip("0123456789"), len(call[0]), call[0]))


def titles(client: Redis, ids: Sequence[str]) -> dict[str, str]:
    """What each message says of itself in a few words, as Flower shows its arguments; nothing of its content."""
    with client.pipeline(transaction=False) as pipe:
        for message_id in ids:
            pipe.getrange(keys.body(message_id), 0, _FIRST_LINE)
        return dict(zip(ids, map(_title, pipe.execute()), strict=True))


def content(client: Redis, message_id: str) -> Any:
    """The first argument of a message's task; None when there is none to be read."""
    stored: Any = client.get(keys.body(message_id)) or b""
    line, newline, body = stored.partition(b"\n")
    try:
        return json.loads(body if newline else line)[0][0]
    except (ValueError, LookupError, TypeError):
        return None


def paused(client: Redis) -> dict[str, int]:
    """`lane:<key>`, `queue:<name>` or `group:<name>` -> since when nothing of it is handed out, ms."""
    found: Any = client.hgetall(keys.PAUSED)
    return {what.decode(): int(at_ms) for what, at_ms in found.items()}


def losses(client: Redis) -> list[Loss]:
    """Those that nobody has acknowledged, the first one first."""
    found: Any = client.hvals(keys.LOSSES)
    return sorted(loss for record in found if not (loss := loss_answer(record)).is_acknowledged)


def workers(client: Redis) -> dict[str, int]:
    """host:pid:… of each worker that has swept within a lease -> its slots. One that stopped is told for so long."""
    alive: Any = client.zrangebyscore(keys.WORKERS, now_us(client) / 1000, "+inf")
    named = (member.decode().rpartition(" ") for member in alive)
    return {holder: int(slots) for holder, _, slots in named}


def parked(client: Redis) -> dict[tuple[str, str], tuple[int, float]]:
    """(kind, group of queues) -> how many messages of it were put off by that, and for how many seconds together."""
    found: Any = client.hgetall(keys.PARKED)
    by = {tuple(field.decode().split(" ", 2)): int(n) for field, n in found.items()}
    return {
        (kind, group): (n, by.get(("ms", kind, group), 0) / 1000)
        for (what, kind, group), n in by.items()
        if what == "times"
    }


def times(client: Redis) -> dict[tuple[str, str], Histogram]:
    """(WAIT, RUN or RECOVERY, group of queues) -> how long that took."""
    found: Any = client.hgetall(keys.TIMES)
    return read_times({field.decode(): int(n) for field, n in found.items()})


def lost_runs(client: Redis, group: str) -> int:
    """How many runs lost their lease before they had ended."""
    return int(client.hget(keys.TIMES, field(LOST, RUNS, group)) or 0)


def counts(client: Redis) -> dict[str, int]:
    found: Any = client.hgetall(keys.COUNTS)
    return {name.decode(): int(value) for name, value in found.items()}


def _record(message_id: str, fields: list[str]) -> Record:
    state, queue, lanes, seq, fence, holder, failed, died, replayed, parked = fields
    return Record(
        id=message_id,
        state=state,
        queue=queue,
        lanes=tuple(key for key in lanes.split("\n") if key),
        appended_us=int(float(seq or 0)),
        moved_us=int(fence or 0),
        holder=holder,
        failed=int(failed or 0),
        died=int(died or 0),
        is_replayed=bool(replayed),
        parked=parked,
    )


def _title(stored: bytes) -> str:
    try:
        said = orjson.loads(stored.partition(b"\n")[0])["headers"].get("argsrepr", "")
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""
    return str(said).strip("()")


def _texts(values: Any) -> list[str]:
    return [value.decode() for value in values]
