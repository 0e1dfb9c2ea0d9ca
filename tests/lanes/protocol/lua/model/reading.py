"""Reads every key of the database into a State (state.py).

It fails on an unknown key or message field, and on a message whose score in a lane differs from its recorded seq. It
is not a snapshot: there must be no concurrent writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from redis import Redis

from celery_lanes.protocol import Store, keys
from tests.lanes.protocol.lua.model.state import (
    BITS,
    CLOCK,
    FENCES_FROM,
    KEPT,
    MINUTE_MS,
    RATES,
    MessageState,
    State,
    number_of,
)

#: A fence that this test took from the clock is not older than this.
RECENT_US = 600 * 1_000_000


def read(client: Redis) -> State:
    """Read the whole state. Raises AssertionError if it is inconsistent."""
    names = sorted(text(name) for name in client.scan_iter(count=1000))
    families = [next((family for family in _FAMILIES if name.startswith(family)), "") for name in names]
    with client.pipeline() as pipe:
        pipe.time()
        for name, family in zip(names, families, strict=True):
            _FAMILIES[family][0](pipe, name)
        (seconds, micros), *values = pipe.execute()
    reading = _Reading(int(seconds) * 1_000_000 + int(micros))
    for name, family, value in zip(names, families, values, strict=True):
        _FAMILIES[family][1](reading, name.removeprefix(family), value)
    for message_id, record in reading.records.items():
        reading.state.messages[message_id] = reading.message(message_id, record)
    for timer in Store(client).timers(*reading.timer_names):
        fields = (timer.id, timer.queue, "\n".join(timer.lanes), text(timer.stored))
        reading.state.timer_fields[timer.owner][timer.name] = fields
    assert reading.settled_by_queue == reading.state.counts.get("settled", 0)
    assert reading.parked_by_kind == reading.state.counts.get("parked", 0)
    return reading.state


class _Reading:
    """One method for each kind of key, and their shared state."""

    def __init__(self, now_us: int) -> None:
        self.now_us = now_us
        self.state = State()
        self.settled_by_queue = self.parked_by_kind = 0
        self.records: dict[str, dict[str, str]] = {}
        self.seqs: dict[tuple[str, str], float] = {}
        self.timer_names: dict[str, list[str]] = {}

    def record(self, message_id: str, fields: dict[bytes, bytes]) -> None:
        self.records[message_id] = {text(name): text(value) for name, value in fields.items()}

    def lane(self, name: str, members: list[tuple[bytes, float]]) -> None:
        self.state.lanes[name] = [text(member) for member, _ in members]
        self.seqs |= {(name, text(member)): seq for member, seq in members}

    def pending(self, group: str, members: list[tuple[bytes, float]]) -> None:
        self.state.pending[group] = [text(member) for member, _ in members]
        self.seqs |= {(f"pending {group}", text(member)): seq for member, seq in members}

    def leases(self, _: str, members: list[tuple[bytes, float]]) -> None:
        self.state.leases = {text(member): self.minutes_until(at_ms) for member, at_ms in members}

    def delayed(self, _: str, members: list[tuple[bytes, float]]) -> None:
        self.state.delayed = {text(member): self.minutes_until(at_ms) for member, at_ms in members}

    def collecting(self, _: str, members: list[tuple[bytes, float]]) -> None:
        self.state.collecting = {text(member): self.minutes_until(at_ms) for member, at_ms in members}

    def timers(self, _: str, members: list[tuple[bytes, float]]) -> None:
        self.state.timers = {text(member): self.minutes_until(at_ms) for member, at_ms in members}

    def timer(self, owner: str, stored: bytes) -> None:
        """The names; `read` adds the fields of those that have a time."""
        names, rest = self.timer_names.setdefault(owner, []), stored
        while rest:
            fields = []
            for _ in range(5):
                length, _, rest = rest.partition(b":")
                fields.append(rest[: int(length)])
                rest = rest[int(length) :]
            names.append(text(fields[0]))
        self.state.timer_fields[owner] = dict.fromkeys(names, ())
        assert len(self.state.timer_fields[owner]) == len(names), f"a timer of {owner} is stored twice"

    def overflow(self, owner: str, named: dict[bytes, bytes]) -> None:
        self.timer(owner, b"".join(named.values()))

    def dead(self, _: str, members: list[tuple[bytes, float]]) -> None:
        self.state.dead = [text(member) for member, _ in members]

    def held(self, _: str, members: list[tuple[bytes, float]]) -> None:
        self.state.held = {text(member): self.minutes_until(at_ms) for member, at_ms in members}

    def gap(self, scope: str, members: list[tuple[bytes, float]]) -> None:
        self.state.gaps[scope] = [text(member) for member, _ in members]
        assert [number for _, number in members] == [number_of(text(member)) for member, _ in members]

    def missing(self, scope: str, members: list[tuple[bytes, float]]) -> None:
        gaps = [text(member).split(":") for member, _ in members]
        assert [int(number) for number, _ in gaps] == [number for _, number in members]
        self.state.missing[scope] = {int(number): self.minutes_until(float(until_ms)) for number, until_ms in gaps}

    def last(self, _: str, fields: dict[bytes, bytes]) -> None:
        self.state.last = {text(scope): int(number) for scope, number in fields.items()}

    def body(self, message_id: str, stored: bytes) -> None:
        self.state.bodies[message_id] = text(stored)

    def errors(self, message_id: str, problems: list[bytes]) -> None:
        self.state.errors[message_id] = tuple(json.loads(problem)["type"] for problem in problems)

    def journal(self, message_id: str, fields: dict[bytes, bytes]) -> None:
        self.state.journals[message_id] = {text(name): self.call(text(noted)) for name, noted in fields.items()}

    def call(self, noted: str) -> str:
        state, blank, rest = noted.partition(" ")
        if not blank:
            return noted
        by, _, what = rest.partition(" ")
        return f"{state} {self.fence(by)} {what}"

    def bell(self, queue: str, elements: list[bytes]) -> None:
        assert elements == [b"1"], f"the bell of {queue} has {len(elements)} elements"
        self.state.bells.add(queue)

    def seen(self, block: str, bitmap: bytes) -> None:
        self.state.seen[block] = {
            index * BITS + bit for index, byte in enumerate(bitmap) for bit in range(BITS) if byte & (128 >> bit)
        }

    def counts(self, _: str, fields: dict[bytes, bytes]) -> None:
        self.state.counts = {text(name): int(n) for name, n in fields.items() if name != b"seq" and int(n)}

    def settled(self, _: str, fields: dict[bytes, bytes]) -> None:
        self.settled_by_queue = sum(map(int, fields.values()))

    def parked(self, _: str, fields: dict[bytes, bytes]) -> None:
        times = [int(n) for name, n in fields.items() if name.startswith(b"times ")]
        self.parked_by_kind = sum(times)

    def times(self, _: str, fields: dict[bytes, bytes]) -> None:
        self.state.times = {text(field): int(n) for field, n in fields.items()}

    def paused(self, _: str, fields: dict[bytes, bytes]) -> None:
        self.state.paused = set(map(text, fields))

    def notes(self, _: str, fields: dict[bytes, bytes]) -> None:
        self.state.notes = {text(lane): text(note) for lane, note in fields.items()}

    def modes(self, _: str, fields: dict[bytes, bytes]) -> None:
        self.state.modes = {text(lane): text(mode) for lane, mode in fields.items()}

    def rate(self, key: str, record: bytes) -> None:
        full_us, at_us, marked_us = map(int, record.split())
        assert abs(at_us - self.now_us) < RECENT_US
        self.state.rates[key] = self.minutes_until(full_us / 1000), max(self.minutes_until(marked_us / 1000), 0)

    def paces(self, _: str, members: list[tuple[bytes, float]]) -> None:
        self.state.paces = {text(lane): self.minutes_until(at_ms) for lane, at_ms in members}

    def limit(self, key: str, members: list[tuple[bytes, float]]) -> None:
        """Those with a permit in the order of their seqs, too."""
        self.seqs |= {("limit " + key, text(member)): abs(seq) for member, seq in members}
        placed = [text(member) for member, seq in reversed(members) if seq < 0]
        gated = [text(member) for member, seq in members if seq > 0]
        if placed:
            self.state.permits[key] = placed
        if gated:
            self.state.gates[key] = gated

    def successors(self, _: str, fields: dict[bytes, bytes]) -> None:
        self.state.successors = {text(message_id): text(packed) for message_id, packed in fields.items()}

    def schedules(self, _: str, fields: dict[bytes, bytes]) -> None:
        self.state.schedules = {text(name): text(record) for name, record in fields.items()}

    def swept(self, _: str, at_ms: bytes) -> None:
        self.state.swept = -self.minutes_until(float(at_ms))

    def identity(self, _: str, at_us: bytes) -> None:
        """Every database that was used has an identity."""
        assert self.now_us - int(at_us) < RECENT_US

    def kept(self, name: str, value: bytes) -> None:
        self.state.kept[name] = text(value)

    def queue(self, name: str, waiting: list[bytes]) -> None:
        self.state.ready[name] = [text(entry) for entry in reversed(waiting)]

    def message(self, message_id: str, record: dict[str, str]) -> MessageState:
        lines = [*filter(None, record.pop("lanes").split("\n"))]
        lanes = tuple(line for line in lines if line[0] not in "\x1c\x1f")
        limits = tuple(line[1:] for line in lines if line[0] == "\x1c")
        paces = "".join(line[1:] for line in lines if line[0] == "\x1f")
        assert lines == [*lanes, *(f"\x1c{limit}" for limit in limits), *([f"\x1f{paces}"] if paces else [])]
        rates = {str(interval_ms): rate for rate, interval_ms in RATES.items()}
        seq = float(record.pop("seq"))
        in_limits = [f"limit {limit.partition(' ')[2]}" for limit in limits]
        for lane in (*lanes, *in_limits, f"pending {keys.group_of(record['queue'])}"):
            found = self.seqs.get((lane, message_id), seq)
            assert found == seq, f"{message_id} has seq {seq}, but {found} in {lane}"
        replayed, alive = record.pop("replayed", None), record.pop("alive", None)
        times = {"leased": self.state.leases, "delayed": self.state.delayed, "held": self.state.held}
        minutes = times.get(record["state"], {}).get(message_id)
        body = self.state.bodies.get(message_id)
        message = MessageState(
            message_id,
            record.pop("state"),
            lanes,
            queue=record.pop("queue"),
            fence=self.fence(record.pop("fence", None)),
            holder=record.pop("holder", None),
            minutes=minutes,
            died=int(record.pop("died", 0)),
            failed=int(record.pop("failed", 0)),
            alive=None if alive is None else -self.minutes_until(int(alive)),
            replayed=None if replayed is None else -self.minutes_until(int(replayed)),
            held=record.pop("held", None),
            parked=record.pop("parked", None),
            group=record.pop("group", None),
            size=int(record.pop("size", 1)),
            due=self.state.collecting.get(message_id),
            interrupted=int(record.pop("interrupted", 0)),
            is_open=record.pop("open", None) is not None,
            is_shielded=record.pop("shielded", None) is not None,
            is_stopped=record.pop("stopped", None) is not None,
            is_unstoppable=record.pop("unstoppable", None) is not None,
            taken=tuple((place, id_) for place, id_, _ in json.loads(record.pop("taken", "[]"))),
            has_turn=record.pop("turn", None) is not None,
            is_marked=record.pop("marked", None) is not None,
            is_gathered=record.pop("gathered", None) is not None,
            limits=limits,
            rates=tuple(rates[interval_ms] for interval_ms in paces.split()),
            errors=self.state.errors.get(message_id, ()),
            body=None if body == f"body of {message_id}" else body,
        )
        assert not record, f"{message_id} has unknown fields: {record}"
        return message

    def minutes_until(self, at_ms: float) -> int:
        return round((at_ms - self.now_us / 1000) / MINUTE_MS)

    def fence(self, value: str | None) -> int | None:
        if value is None:
            return None
        if int(value) >= FENCES_FROM:
            return int(value) - FENCES_FROM
        assert abs(int(value) - self.now_us) < RECENT_US, f"fence {value} is neither seeded nor from the clock"
        return CLOCK


def _members(pipe: Any, name: str) -> None:
    pipe.zrange(name, 0, -1, withscores=True)


def _elements(pipe: Any, name: str) -> None:
    pipe.lrange(name, 0, -1)


def _fields(pipe: Any, name: str) -> None:
    pipe.hgetall(name)


def _string(pipe: Any, name: str) -> None:
    pipe.get(name)


#: prefix -> how to fetch such a key, and how to read it. A key without a known prefix is the list of a queue.
_FAMILIES: dict[str, tuple[Callable[[Any, str], None], Callable[..., None]]] = {
    keys.MESSAGE: (_fields, _Reading.record),
    keys.LANE: (_members, _Reading.lane),
    keys.PENDING: (_members, _Reading.pending),
    keys.LEASES: (_members, _Reading.leases),
    keys.DELAYED: (_members, _Reading.delayed),
    keys.COLLECTING: (_members, _Reading.collecting),
    keys.TIMERS: (_members, _Reading.timers),
    keys.TIMER: (_string, _Reading.timer),
    keys.OVERFLOW: (_fields, _Reading.overflow),
    keys.HELD: (_members, _Reading.held),
    keys.GAP: (_members, _Reading.gap),
    keys.MISSING: (_members, _Reading.missing),
    keys.LAST: (_fields, _Reading.last),
    keys.DEAD: (_members, _Reading.dead),
    keys.BODY: (_string, _Reading.body),
    keys.ERRORS: (_elements, _Reading.errors),
    keys.JOURNAL: (_fields, _Reading.journal),
    keys.BELL: (_elements, _Reading.bell),
    keys.SEEN: (_string, _Reading.seen),
    keys.COUNTS: (_fields, _Reading.counts),
    keys.SETTLED: (_fields, _Reading.settled),
    keys.PAUSED: (_fields, _Reading.paused),
    keys.PARKED: (_fields, _Reading.parked),
    keys.TIMES: (_fields, _Reading.times),
    keys.SCHEDULES: (_fields, _Reading.schedules),
    keys.NOTES: (_fields, _Reading.notes),
    keys.MODES: (_fields, _Reading.modes),
    keys.RATE: (_string, _Reading.rate),
    keys.PACES: (_members, _Reading.paces),
    keys.LIMIT: (_members, _Reading.limit),
    keys.SUCCESSORS: (_fields, _Reading.successors),
    keys.SWEPT: (_string, _Reading.swept),
    keys.IDENTITY: (_string, _Reading.identity),
    KEPT: (_string, _Reading.kept),
    "": (_elements, _Reading.queue),
}


def text(value: bytes) -> str:
    return value.decode()
