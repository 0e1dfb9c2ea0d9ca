"""The whole state of the lanes as a value that can be written to Redis (`seed`) and read back (reading.py).

`read` covers every key of the database and fails on an unknown one, so that a comparison of two states shows every
effect of a script. The scripts are not used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis import Redis

from celery_lanes.protocol import Group, Limited, keys

MINUTE_MS = 60_000
#: Expiries are compared in minutes, and no test takes a minute.
LEASE_MINUTES = 60
LEASE_MS = LEASE_MINUTES * MINUTE_MS

#: The fences of a State start here. The server's clock reaches this value in the year 2223. Until then, a message that
#: is seeded with fence 4 gets fences 5 and 6, as if the clock had been set back.
FENCES_FROM = 8 * 10**15
#: A fence that the server took from its clock.
CLOCK = -1

BITS = 8

#: A group, whose messages wait for each other for QUIET_MINUTES, as append.lua receives it.
QUIET_MINUTES, MOST = 10, 3
TALK = Group("g", QUIET_MINUTES * MINUTE_MS, 10**15, MOST)


def group_field(group: Group) -> str:
    """A group as append.lua receives it."""
    mode = 1 if group.interrupts else 2 if group.steers else 0
    return f"{group.quiet_ms} {group.max_wait_ms} {group.most} {mode} {group.name}"


GROUP = group_field(TALK)
#: Such a group whose runs are interrupted.
INTERRUPTING = TALK._replace(name="i", interrupts=True)
#: Such a group whose runs may take what arrives.
STEERING = TALK._replace(name="s", steers=True)

#: Rates of lanes, and the ms between two starts.
RATES = {"": 0, "1/h": 60 * MINUTE_MS, "2/h": 30 * MINUTE_MS}


def paces_field(rates: Sequence[str]) -> list[str]:
    """The rates as they are stored after the lanes of a message."""
    return ["\x1f" + " ".join(str(RATES[rate]) for rate in rates)] if rates else []


#: The prefix of other keys, which holders write with a commit.
KEPT = "kept:"


@dataclass(frozen=True)
class MessageState:
    """The keys of one message. `minutes` is the time left of its lease or delay."""

    id: str
    state: str
    lanes: tuple[str, ...] = ()
    queue: str = "q"
    fence: int | None = None
    holder: str | None = None
    minutes: int | None = None
    died: int = 0
    failed: int = 0
    replayed: int | None = None  # minutes ago
    held: str | None = None  # its scope and number
    parked: str | None = None  # the reason
    alive: int | None = None  # minutes ago
    errors: tuple[str, ...] = ()  # their types
    body: str | None = None  # None: "body of <id>"
    group: str | None = None  # as append.lua receives it
    size: int = 1
    due: int | None = None  # minutes until the group is due
    interrupted: int = 0
    is_open: bool = False  # again, after an interrupt
    is_shielded: bool = False
    is_stopped: bool = False
    is_unstoppable: bool = False
    taken: tuple[tuple[int, str], ...] = ()  # of each message that its runs have taken, the place and the id
    has_turn: bool = False  # it is over its rate: `due` is its turn
    is_marked: bool = False
    is_gathered: bool = False
    rates: tuple[str, ...] = ()  # of each lane, empty: it has none; nothing if no lane has one
    limits: tuple[str, ...] = ()  # of each, how many may run and its key, by a blank


@dataclass(frozen=True)
class TimerState:
    """A timer. `minutes` is the time until it is due."""

    owner: str
    name: str
    id: str
    minutes: int = 10
    lanes: tuple[str, ...] = ()
    queue: str = "q"
    body: str = "timer"

    @property
    def key(self) -> str:
        return keys.timer(self.owner, self.name)

    @property
    def fields(self) -> tuple[str, ...]:
        """As timers.lua stores them, after the name."""
        return self.id, self.queue, "\n".join(lane for lane in self.lanes if not isinstance(lane, Limited)), self.body


@dataclass
class State:
    """All keys. `ready` starts with the next message; `counts` omits zeros and `seq`."""

    messages: dict[str, MessageState] = field(default_factory=dict)
    lanes: dict[str, list[str]] = field(default_factory=dict)
    ready: dict[str, list[str]] = field(default_factory=dict)
    pending: dict[str, list[str]] = field(default_factory=dict)
    leases: dict[str, int] = field(default_factory=dict)
    delayed: dict[str, int] = field(default_factory=dict)
    collecting: dict[str, int] = field(default_factory=dict)
    dead: list[str] = field(default_factory=list)
    bodies: dict[str, str] = field(default_factory=dict)
    errors: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: id -> position -> state, fence, what and outcome
    journals: dict[str, dict[str, str]] = field(default_factory=dict)
    bells: set[str] = field(default_factory=set)
    seen: dict[str, set[int]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)  # <scope>:<number> -> minutes
    gaps: dict[str, list[str]] = field(default_factory=dict)
    missing: dict[str, dict[int, int]] = field(default_factory=dict)  # scope -> number above a gap -> minutes
    last: dict[str, int] = field(default_factory=dict)
    swept: int | None = None  # minutes ago
    paused: set[str] = field(default_factory=set)
    times: dict[str, int] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)  # lane -> its note
    modes: dict[str, str] = field(default_factory=dict)  # lane -> its mode
    #: key of a rate -> minutes until it is at its start again, and until when no message is marked
    rates: dict[str, tuple[int, int]] = field(default_factory=dict)
    schedules: dict[str, str] = field(default_factory=dict)  # <owner>, a newline, <name> -> its record
    paces: dict[str, int] = field(default_factory=dict)  # lane -> minutes until its next message may start
    permits: dict[str, list[str]] = field(default_factory=dict)  # key of a limit -> the messages that have a permit
    gates: dict[str, list[str]] = field(default_factory=dict)  # and those that wait for one, in order
    #: id -> queue, lanes and stored message, joined by tabs
    successors: dict[str, str] = field(default_factory=dict)
    #: owner and name -> minutes
    timers: dict[str, int] = field(default_factory=dict)
    #: owner -> name -> id, queue, lanes and stored form
    timer_fields: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)


def fence(number: int) -> str:
    """A fence as a holder sends it."""
    return str(FENCES_FROM + number)


def waiting(message_id: str, *lanes: str, **more: Any) -> MessageState:
    return MessageState(message_id, "waiting", lanes, **more)


def ready(message_id: str, *lanes: str, **more: Any) -> MessageState:
    return MessageState(message_id, "ready", lanes, **more)


def collecting(message_id: str, *lanes: str, **more: Any) -> MessageState:
    return MessageState(message_id, "collecting", lanes, **({"group": GROUP, "due": QUIET_MINUTES} | more))


def leased(message_id: str, *lanes: str, **more: Any) -> MessageState:
    return MessageState(message_id, "leased", lanes, **({"fence": 1, "holder": "me", "minutes": LEASE_MINUTES} | more))


def gated(message_id: str, *lanes: str, **more: Any) -> MessageState:
    """It waits in the first of its limits."""
    return MessageState(message_id, "gated", lanes, **more)


def delayed(message_id: str, *lanes: str, **more: Any) -> MessageState:
    return MessageState(
        message_id, "delayed", lanes, **({"fence": 1, "minutes": 10, "failed": 1, "errors": ("E",)} | more)
    )


def held(message_id: str, *lanes: str, **more: Any) -> MessageState:
    """Its scope and number are taken from the id: <scope>:<number>."""
    return MessageState(message_id, "held", lanes, held=message_id, **({"minutes": 10} | more))


def buried(message_id: str, *lanes: str, **more: Any) -> MessageState:
    return MessageState(message_id, "buried", lanes, **({"fence": 1, "errors": ("E",)} | more))


def state_with(
    *messages: MessageState,
    ready: Mapping[str, Sequence[str]] | None = None,
    bells: Iterable[str] | None = None,
    counts: Mapping[str, int] | None = None,
    seen: Mapping[str, Iterable[int]] | None = None,
    journals: Mapping[str, Mapping[str, str]] | None = None,
    swept: int | None = None,
    kept: Mapping[str, str] | None = None,
    last: Mapping[str, int] | None = None,
    missing: Mapping[int, int] | None = None,
    paused: Iterable[str] = (),
    timers: Iterable[TimerState] = (),
    successors: Mapping[str, str] | None = None,
) -> State:
    """The consistent state with these messages, in this lane order.

    `ready` and `dead` have this order, too, unless `ready` is given. By default, the bells of all queues with ready
    messages are set.
    """
    state = State(messages={message.id: message for message in messages}, swept=swept, kept=dict(kept or {}))
    for message in messages:
        _add(state, message)
    for queue, ids in (ready or {}).items():
        assert sorted(ids) == sorted(state.ready[queue])
        state.ready[queue] = list(ids)
    state.bells = set(state.ready if bells is None else bells)
    state.journals = {message_id: dict(calls) for message_id, calls in (journals or {}).items()}
    state.seen = {block: set(offsets) for block, offsets in (seen or {}).items()}
    state.last = dict(last or {})
    state.missing = {"1": dict(missing)} if missing else {}
    state.paused = set(paused)
    state.successors = dict(successors or {})
    state.counts = {name: n for name, n in (counts or {}).items() if n}
    for timer in timers:
        state.timers[timer.key] = timer.minutes
        state.timer_fields.setdefault(timer.owner, {})[timer.name] = timer.fields
    return state


def _add(state: State, message: MessageState) -> None:
    state.bodies[message.id] = message.body or f"body of {message.id}"
    if message.errors:
        state.errors[message.id] = message.errors
    if message.state == "buried":
        state.dead.append(message.id)
    elif message.state == "held":
        scope, _, _ = message.id.rpartition(":")
        state.gaps[scope] = sorted([*state.gaps.get(scope, []), message.id], key=number_of)
        state.held[message.id] = message.minutes or 0
    if message.state != "buried":
        state.pending.setdefault(keys.group_of(message.queue), []).append(message.id)
    if message.state not in ("buried", "held"):
        for lane in message.lanes:
            state.lanes.setdefault(lane, []).append(message.id)
    if message.state == "ready":
        state.ready.setdefault(message.queue, []).append(message.id)
    _add_limits(state, message)
    if message.due is not None:
        state.collecting[message.id] = message.due
    if message.minutes is not None and message.state != "held":
        {"leased": state.leases, "delayed": state.delayed}[message.state][message.id] = message.minutes


def _add_limits(state: State, message: MessageState) -> None:
    if message.state in ("ready", "leased") and not message.is_stopped:
        for limit in message.limits:
            state.permits.setdefault(limit.partition(" ")[2], []).append(message.id)
    if message.state == "gated":
        state.gates.setdefault(message.limits[0].partition(" ")[2], []).append(message.id)


def number_of(message_id: str) -> int:
    return int(message_id.rpartition(":")[2])


def seed(client: Redis, state: State) -> None:
    """Write a state into an empty database."""
    now_ms = _now_ms(client)
    seqs = {message_id: seq for seq, message_id in enumerate(state.messages, 1)}
    with client.pipeline() as pipe:
        for message in state.messages.values():
            pipe.hset(keys.message(message.id), mapping=_record(message, seqs[message.id], now_ms))
        in_order = {keys.lane(lane): ids for lane, ids in state.lanes.items()}
        for zset, ids in {**in_order, **{keys.pending(name): ids for name, ids in state.pending.items()}}.items():
            pipe.zadd(zset, {each: seqs.get(each, 0) for each in ids})
        for queue, ids in state.ready.items():
            pipe.rpush(queue, *reversed(ids))
        _zset(pipe, keys.LEASES, {each: now_ms + minutes * MINUTE_MS for each, minutes in state.leases.items()})
        _zset(pipe, keys.DELAYED, {each: now_ms + minutes * MINUTE_MS for each, minutes in state.delayed.items()})
        due_ms = {each: now_ms + minutes * MINUTE_MS for each, minutes in state.collecting.items()}
        _zset(pipe, keys.COLLECTING, due_ms)
        _seed_timers(pipe, state, now_ms)
        _zset(pipe, keys.HELD, {each: now_ms + minutes * MINUTE_MS for each, minutes in state.held.items()})
        for scope, ids in state.gaps.items():
            _zset(pipe, keys.GAP + scope, {each: number_of(each) for each in ids})
        for scope, above in state.missing.items():
            ends = {number: now_ms + minutes * MINUTE_MS for number, minutes in above.items()}
            _zset(pipe, keys.MISSING + scope, {f"{number}:{end_ms}": number for number, end_ms in ends.items()})
        _hash(pipe, keys.LAST, state.last)
        _hash(pipe, keys.PAUSED, dict.fromkeys(state.paused, now_ms))
        _zset(pipe, keys.DEAD, {each: now_ms - MINUTE_MS + index for index, each in enumerate(state.dead)})
        _seed_contents(pipe, state, now_ms)
        for queue in state.bells:
            pipe.lpush(keys.bell(queue), 1)
        for block, offsets in state.seen.items():
            for offset in offsets:
                pipe.setbit(keys.SEEN + block, offset, 1)
        pipe.hset(keys.COUNTS, mapping={"seq": len(seqs), **state.counts})
        if state.swept is not None:
            pipe.set(keys.SWEPT, now_ms - state.swept * MINUTE_MS)
        pipe.execute()


def _strings(state: State) -> dict[str, str]:
    bodies = {keys.body(message_id): body for message_id, body in state.bodies.items()}
    return bodies | {KEPT + name: value for name, value in state.kept.items()}


def _seed_contents(pipe: Any, state: State, now_ms: int) -> None:
    """Write bodies, errors, journals, and the holders' other keys."""
    for name, value in _strings(state).items():
        pipe.set(name, value)
    _hash(pipe, keys.SCHEDULES, state.schedules)
    _hash(pipe, keys.NOTES, state.notes)
    _hash(pipe, keys.MODES, state.modes)
    for key, times in state.rates.items():
        full, marked = (round((now_ms + minutes * MINUTE_MS) * 1000) if minutes else 0 for minutes in times)
        pipe.set(keys.RATE + key, f"{full} {now_ms * 1000} {marked}")
    seqs = {message_id: seq for seq, message_id in enumerate(state.messages, 1)}
    for limit, ids in state.permits.items():
        _zset(pipe, keys.LIMIT + limit, {each: -seqs[each] for each in ids})
    for limit, ids in state.gates.items():
        _zset(pipe, keys.LIMIT + limit, {each: seqs[each] for each in ids})
    _zset(pipe, keys.PACES, {each: now_ms + minutes * MINUTE_MS for each, minutes in state.paces.items()})
    _hash(pipe, keys.SUCCESSORS, state.successors)
    for message_id, kinds in state.errors.items():
        pipe.rpush(keys.errors(message_id), *(json.dumps({"at_ms": now_ms, "type": kind}) for kind in kinds))
    for message_id, calls in state.journals.items():
        pipe.hset(keys.journal(message_id), mapping={name: _call(noted) for name, noted in calls.items()})


def _seed_timers(pipe: Any, state: State, now_ms: int) -> None:
    _zset(pipe, keys.TIMERS, {each: now_ms + minutes * MINUTE_MS for each, minutes in state.timers.items()})
    for owner, named in state.timer_fields.items():
        fields = [part for name, fields in named.items() for part in (name, *fields)]
        pipe.set(keys.TIMER + owner, "".join(f"{len(part)}:{part}" for part in fields))


def _record(message: MessageState, seq: int, now_ms: int) -> dict[str, Any]:
    fields = {
        "state": message.state,
        "queue": message.queue,
        "lanes": "\n".join(
            [*message.lanes, *(f"\x1c{limit}" for limit in message.limits), *paces_field(message.rates)]
        ),
        "seq": seq,
        "fence": None if message.fence is None else fence(message.fence),
        "holder": message.holder,
        "died": message.died or None,
        "failed": message.failed or None,
        "held": message.held,
        "group": message.group,
        "size": message.size if message.size > 1 else None,
        "interrupted": message.interrupted or None,
        "open": now_ms if message.is_open else None,
        "shielded": 1 if message.is_shielded else None,
        "stopped": 0 if message.is_stopped else None,
        "unstoppable": 1 if message.is_unstoppable else None,
        "taken": json.dumps([[place, id_, str(seq)] for place, id_ in message.taken]) if message.taken else None,
        "turn": now_ms + (message.due or 0) * MINUTE_MS if message.has_turn else None,
        "marked": 1 if message.is_marked else None,
        "gathered": 1 if message.is_gathered else None,
        "parked": message.parked,
        "alive": None if message.alive is None else now_ms - message.alive * MINUTE_MS,
        "replayed": None if message.replayed is None else now_ms - message.replayed * MINUTE_MS,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _call(noted: str) -> str:
    """A journal field with its fence as a holder sends it. The field `last` is only a number."""
    state, blank, rest = noted.partition(" ")
    by, _, what = rest.partition(" ")
    return f"{state} {fence(int(by))} {what}" if blank else noted


def _hash(pipe: Any, key: str, fields: Mapping[str, int] | Mapping[str, str]) -> None:
    if fields:
        pipe.hset(key, mapping=fields)


def _zset(pipe: Any, key: str, members: Mapping[str, int]) -> None:
    if members:
        pipe.zadd(key, members)


def _now_ms(client: Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000
