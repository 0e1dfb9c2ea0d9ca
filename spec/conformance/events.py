"""The events of spec/Trace.tla that a call of a script stands for, by its arguments and by what it has changed.

The arguments are the request, such as to settle a message with a fence; the specification decides what it does.
What a script chooses itself (which messages it leases, which leases have expired) is taken from its commands.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from celery_lanes.protocol import keys
from celery_lanes.protocol.scripts import contract
from spec.conformance.mirror import Mirror
from spec.conformance.monitor import Call

#: Verbs that change no record that the specification has.
WITHOUT_EFFECT = ("look", "lose", "rights", "acknowledge", "timers_of", "end", "stage")
_HEADER = re.compile(r"^-- (\w+): .*\n(?:--.*\n)*-- Returns", re.MULTILINE)
_WRITES = (
    "HSET",
    "HDEL",
    "HINCRBY",
    "DEL",
    "UNLINK",
    "ZADD",
    "ZREM",
    "ZINCRBY",
    "SET",
    "RENAME",
    "FLUSHALL",
    "FLUSHDB",
)
_SPECIFIED = (
    keys.MESSAGE,
    keys.LANE,
    keys.LEASES,
    keys.DELAYED,
    keys.DEAD,
    keys.PAUSED,
    keys.TIMERS,
    keys.COLLECTING,
    keys.PACES,
    keys.LIMIT,
)
#: How far below a held number one may be missing.
_FAR = 1000


@dataclass(frozen=True)
class Event:
    """One step of the specification; `adopt`: what Redis has is taken as it is, because the call is not specified."""

    what: str
    message: str = ""
    fence: str = ""
    worker: str = ""
    lanes: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    once: str = ""  #: under which it is remembered, if that is not its id
    group: str = ""  #: as it is stored
    timer: str = ""
    is_allowed: bool = True  #: by the times and numbers, which the specification does not have
    unstoppable: tuple[str, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()  #: what messages become now when they are first (Core.tla, heads)

    @property
    def most(self) -> int:
        return int(self.group.split(" ")[2]) if self.group else 0

    @property
    def interrupts(self) -> bool:
        return bool(self.group) and self.group.split(" ")[3] == "1"


class NotSpecifiedError(Exception):
    """The call uses a part of the protocol that the specification does not have; the text names it."""


@dataclass(frozen=True)
class Script:
    """The form of its calls: its name, its fixed arguments, and how many arguments repeat."""

    name: str
    fixed: tuple[str, ...]
    width: int


def script_in(call: Call) -> tuple[str, Script] | None:
    """The digest and the script that this call loads; a script is named in the first line of its header."""
    if call.verb != "SCRIPT" or call.arguments[1].upper() != "LOAD":
        return None
    source = call.arguments[2]
    named = _HEADER.findall(source)
    if not named or (keys.MESSAGE not in source and keys.COUNTS not in source):
        return None
    fixed, group = contract(source[source.rindex(f"-- {named[-1]}: ") :])
    digest = hashlib.sha1(source.encode("latin-1"), usedforsecurity=False).hexdigest()
    return digest, Script(named[-1], fixed, len(group) or 1)


@dataclass(frozen=True)
class Verb:
    """A call of a script: its fixed arguments by name, and the rows that repeat."""

    name: str
    keys: list[str]
    fixed: dict[str, str]
    rows: list[list[str]]
    inner: list[list[str]]

    def changes(self) -> Iterator[tuple[str, dict[str, str]]]:
        """The fields of messages that were written, in order."""
        for command in self.inner:
            if command[0].upper() == "HSET" and command[1].startswith(keys.MESSAGE):
                yield command[1].removeprefix(keys.MESSAGE), dict(zip(command[2::2], command[3::2], strict=True))


def is_write(call: Call) -> bool:
    """True for a command that changes what only the scripts of the lanes may change."""
    commands = call.inner or [call.arguments]
    return any(
        each[0].upper() in _WRITES and any(name.startswith(_SPECIFIED) for name in each[1:]) for each in commands
    )


def verb_of(call: Call, scripts: dict[str, Script]) -> Verb | None:
    """None if it is not a script of the lanes, or did not run because the server did not have it."""
    script = scripts.get(call.arguments[1]) if call.verb in ("EVALSHA", "EVALSHA_RO") else None
    if script is None or not call.inner:
        return None
    n = int(call.arguments[2])
    arguments = call.arguments[3 + n :]
    rest = arguments[len(script.fixed) :]
    rows = [rest[i : i + script.width] for i in range(0, len(rest), script.width)]
    fixed = dict(zip(script.fixed, arguments, strict=False))
    return Verb(script.name, call.arguments[3 : 3 + n], fixed, rows, call.inner)


def events_of(verb: Verb, mirror: Mirror) -> list[Event]:
    """The events of a call; `mirror` is the state before it. Raises NotSpecifiedError."""
    states = ((fields.get("state"), mirror.records.get(id_, {}).get("state")) for id_, fields in verb.changes())
    if any(new and "committing" in (new, old) for new, old in states):
        raise NotSpecifiedError("a large commit")
    if any(keys.LIMIT + key in mirror.zsets for key in mirror.paused):
        raise NotSpecifiedError("a paused limit")
    if verb.name in WITHOUT_EFFECT:
        return []
    try:
        events = _EVENTS[verb.name](verb, mirror)
    except KeyError as error:
        raise NotSpecifiedError(verb.name) from error
    return events


def _entered(verb: Verb, but: Iterable[str] = ()) -> list[Event]:
    """Messages that joined their lanes without being named in the call: of timers, schedules, and successors."""
    known = set(but)
    return [
        _keyed(Event("enter", message), fields.get("lanes", ""))
        for message, fields in verb.changes()
        if "seq" in fields and message not in known
    ]


def _fired(verb: Verb, mirror: Mirror) -> list[Event]:
    """Timers that were removed because they are due, each with the message that has joined its lanes next. One that is
    put back, because the script cannot read it, stays set.
    """
    events, named = list[Event](), {row[0] for row in verb.rows}
    due_ms = dict(mirror.zsets[keys.TIMERS])
    now_ms = next((float(each[3]) for each in verb.inner if each[:2] == ["ZRANGEBYSCORE", keys.TIMERS]), 0.0)
    for name, *rest in verb.inner:
        if name == "ZADD" and rest[0] == keys.TIMERS:
            due_ms[rest[2]] = float(rest[1])
            events = [each for each in events if (each.what, each.timer) != ("lapse", rest[2])]
        elif name == "ZREM" and rest[0] == keys.TIMERS and now_ms:
            events += [Event("lapse", timer=timer, is_allowed=due_ms.get(timer, 0.0) <= now_ms) for timer in rest[1:]]
        elif name == "HSET" and rest[0].startswith(keys.MESSAGE) and "seq" in rest and events:
            fields = dict(zip(rest[1::2], rest[2::2], strict=True))
            message = rest[0].removeprefix(keys.MESSAGE)
            if events[-1].what == "lapse" and fields.get("state") == "waiting" and message not in named:
                events[-1] = _keyed(replace(events[-1], what="fire", message=message), fields.get("lanes", ""))
    return events


def _keyed(event: Event, stored: str) -> Event:
    """With the keys of its message, as they are stored: those of its lanes, and those of its limits."""
    return replace(event, lanes=tuple(dict.fromkeys(keys.lane_keys(stored))), limits=tuple(keys.limit_keys(stored)))


def _numbered(message: str) -> tuple[str, int]:
    scope, _, number = message.rpartition(":")
    return (scope, int(number)) if number.isdigit() else ("", 0)


def _lower_held(message: str, mirror: Mirror, joined: Iterable[str] = ()) -> bool:
    scope, number = _numbered(message)
    held = mirror.zsets[keys.GAP + scope] if scope else {}
    return any(score < number for each, score in held.items() if each not in joined)


def _may_be_held(message: str, mirror: Mirror) -> bool:
    """A lower number is missing, or held."""
    scope, number = _numbered(message)
    lower = range(max(number - _FAR, 0), number)
    return _lower_held(message, mirror) or not all(mirror.has_seen(scope, each) for each in lower)


def _append(verb: Verb, mirror: Mirror) -> list[Event]:
    if verb.keys and not any(command[0].upper() not in ("HGET", "TIME", "EXISTS") for command in verb.inner):
        return []  # the guard has another fence
    if any(command[:2] == ["HGET", keys.MODES] for command in verb.inner):
        raise NotSpecifiedError("a mode")
    rows, first = list[Event](), _fired(verb, mirror)
    unheld, new = _unheld(verb, mirror), _new_states(verb)
    joined = set[str]()  # those that were held, and have joined before a row
    for message, *row in verb.rows:
        before = [each for each in unheld if _is_before(each, message, new)]
        unheld = [each for each in unheld if each not in before]
        joined |= {event.message for _, event in before}
        rows += [event for _, event in before]
        rows += _of_row(message, row, verb, mirror, new.get(message, ("", 0))[0], joined)
    known = {each.message for each in (*first, *rows)} | {event.message for _, event in unheld}
    return [*first, *_entered(verb, known), *rows, *(event for _, event in unheld)]


def _is_before(unheld: tuple[int, Event], message: str, new: dict[str, tuple[str, int]]) -> bool:
    """True if the held message joins before this one. One that joins a group has no command of its own."""
    place, event = unheld
    if message in new:
        return place < new[message][1]
    return _numbered(event.message) < _numbered(message)


def _new_states(verb: Verb) -> dict[str, tuple[str, int]]:
    """The first state of each new message, and the place of the command."""
    found: dict[str, tuple[str, int]] = {}
    for at, (message, fields) in enumerate(verb.changes(), 1):
        if "queue" in fields:
            found.setdefault(message, (fields.get("state", ""), at))
    return found


def _unheld(verb: Verb, mirror: Mirror) -> list[tuple[int, Event]]:
    """Held messages that join their lanes, each after all lower ones; with the places of the commands."""
    found, joined = list[tuple[int, Event]](), set[str]()
    was_held = {each for each, record in mirror.records.items() if record.get("state") == "held"}
    gone = {each[1].removeprefix(keys.MESSAGE) for each in verb.inner if each[0] == "DEL"}
    if gone & was_held:
        raise NotSpecifiedError("a held message that joins a group")
    for at, (message, fields) in enumerate(verb.changes(), 1):
        if fields.get("state") == "held":
            was_held.add(message)
        elif message in was_held and "seq" in fields and fields.get("state") == "waiting":
            joined.add(message)
            found.append((at, Event("unhold", message, is_allowed=not _lower_held(message, mirror, joined))))
    return found


def _of_row(message: str, row: list[str], verb: Verb, mirror: Mirror, state: str, joined: set[str]) -> list[Event]:
    queue, _, scope, number, problem, group, after_run, stops, rate, stored_lanes = row
    if rate:
        raise NotSpecifiedError("an append with a rate")
    if not queue:
        return [Event("remember", f"{scope}:{number}")]
    is_seen = bool(scope) and mirror.has_seen(scope, int(number))
    if after_run == "1" and not is_seen and mirror.records.get(message, {}).get("state") in ("leased", "committing"):
        raise NotSpecifiedError("a successor")
    once = f"{scope}:{number}" if scope else ""
    if once not in ("", message) and verb.fixed["hold_ms"] != "0":
        raise NotSpecifiedError("a gap in numbers that are not those of the ids")
    if not scope and group:
        raise NotSpecifiedError("an append with a group that is not remembered")
    keyed = _keyed(Event("hold", message, once=once), stored_lanes)
    lanes = keyed.lanes
    is_new = message not in mirror.records and not is_seen
    before = [_stop(key, mirror) for key in lanes] if stops == "1" and is_new and not problem else []
    if state == "held":
        if group:
            raise NotSpecifiedError("a held message of a group")
        return [*before, replace(keyed, is_allowed=_may_be_held(message, mirror))]
    passes = scope and is_new and lanes and not problem and verb.fixed["hold_ms"] != "0"
    is_allowed = not (passes and _lower_held(message, mirror, joined))
    what = ("malformed" if scope else "unnumbered") if problem else "group" if group else "append" if scope else "enter"
    joins = group if what == "group" else ""
    return [*before, replace(keyed, what=what, group=joins, is_allowed=is_allowed)]


def _stop(key: str, mirror: Mirror) -> Event:
    if any(mirror.limits_of(each) for each in mirror.lane(key)[:1]):
        raise NotSpecifiedError("a stop of a message with a limit")
    known = tuple(each for each in mirror.lane(key) if "unstoppable" in mirror.records.get(each, {}))
    return Event("stop", lanes=(key,), unstoppable=known)


def _turn(verb: Verb, mirror: Mirror) -> list[Event]:
    events = [Event("settle", message, fence) for message, fence in verb.rows] + _entered(verb)
    for message, fields in verb.changes():
        if fields.get("state") == "leased":
            is_allowed = not mirror.is_too_early(message, int(fields["fence"]))
            events.append(Event("lease", message, fields["fence"], fields["holder"], is_allowed=is_allowed))
        elif fields.get("state") == "buried":
            events.append(Event("killer", message))
    return events


def _commit(verb: Verb, mirror: Mirror) -> list[Event]:
    if verb.fixed["staged"] != "0":
        raise NotSpecifiedError("a large commit")
    message, fence = verb.fixed["id"], verb.fixed["fence"]
    events = [Event("settle", message, fence), *_entered(verb)]
    record = mirror.records.get(message, {})
    if (record.get("state"), record.get("fence")) != ("leased", fence):
        return events
    for what, timer, *_ in verb.rows:
        if what == "assign":
            raise NotSpecifiedError("a timer that moves")
        if what in ("at", "from", "in", "cancel"):
            events.append(Event("cancel" if what == "cancel" else "set", timer=timer))
    return events


def _schedule(verb: Verb, mirror: Mirror) -> list[Event]:
    if not any(command[0] == "ZADD" and command[1] == keys.TIMERS for command in verb.inner):
        return []
    return [Event("set", timer=verb.fixed["timer"]), *_fired(verb, mirror)]


def _shield(verb: Verb, mirror: Mirror) -> list[Event]:
    message, fence = verb.fixed["id"], verb.fixed["fence"]
    if verb.fixed["shielded"] == "1":
        return [Event("shield", message, fence)]
    if absorbed := _absorbed(verb, "gather"):
        return [*absorbed, Event("interrupt", message, fence)]
    return [Event("unshield", message, fence, group=mirror.records.get(message, {}).get("group", ""))]


def _absorbed(verb: Verb, what: str) -> list[Event]:
    """One for each message that has become a part of this one."""
    gone = [each for each in verb.inner if each[0] == "DEL" and each[1].startswith(keys.MESSAGE)]
    return [Event(what, verb.fixed["id"], verb.fixed["fence"]) for _ in gone]


def _take(verb: Verb, mirror: Mirror) -> list[Event]:
    has_taken = any("taken" in fields for _, fields in verb.changes())
    return [Event("take", verb.fixed["id"], verb.fixed["fence"])] if has_taken else []


def _release(verb: Verb, mirror: Mirror) -> list[Event]:
    return [Event("died" if died == "1" else "release", message, fence) for message, fence, died in verb.rows]


def _one(what: str) -> Callable[[Verb, Mirror], list[Event]]:
    return lambda verb, mirror: [Event(what, verb.fixed["id"], verb.fixed.get("fence", "")), *_entered_of(what, verb)]


def _entered_of(what: str, verb: Verb) -> list[Event]:
    return [] if what == "replay" else _entered(verb)


def _renew(verb: Verb, mirror: Mirror) -> list[Event]:
    return [Event("renew", message, fence) for message, fence in verb.rows]


def _sweep(verb: Verb, mirror: Mirror) -> list[Event]:
    """A lease is over by the time that the script itself has recorded, and after the extension that it grants."""
    now_ms = next(float(command[2]) for command in verb.inner if command[:2] == ["SET", keys.SWEPT])
    until_ms = dict(mirror.zsets[keys.LEASES])
    events = []
    for name, zset, *members in (command for command in verb.inner if len(command) > 1):
        if name.upper() == "ZADD" and zset == keys.LEASES:
            until_ms.update(zip(members[1::2], map(float, members[::2]), strict=True))
        for message in members if (name.upper(), zset) == ("ZREM", keys.LEASES) else ():
            if mirror.records.get(message, {}).get("state") == "leased" and message in until_ms:
                events += [Event("elapse", message)] * (until_ms.pop(message) <= now_ms) + [Event("expire", message)]
        for message in members if (name.upper(), zset) == ("ZREM", keys.DELAYED) else ():
            if mirror.zsets[keys.DELAYED].get(message, now_ms + 1) <= now_ms:
                events.append(Event("due", message))
    fired = [*(event for _, event in _unheld(verb, mirror)), *_fired(verb, mirror)]
    return [*events, *fired, *_entered(verb, {event.message for event in fired})]


def _reconcile(verb: Verb, mirror: Mirror) -> list[Event]:
    holder = verb.fixed["holder"]
    return [
        Event("reconcile", each, worker=holder)
        for each, fields in verb.changes()
        if fields.get("state") == "ready" and mirror.records.get(each, {}).get("state") == "leased"
    ]


_EVENTS: dict[str, Callable[[Verb, Mirror], list[Event]]] = {
    "append": _append,
    "turn": _turn,
    "commit": _commit,
    "release": _release,
    "retry": _one("delay"),
    "park": _one("delay"),
    "bury": _one("bury"),
    "begin": _one("renew"),
    "replay": _one("replay"),
    "drop": _one("drop"),
    "renew": _renew,
    "sweep": _sweep,
    "reconcile": _reconcile,
    "schedule": _schedule,
    "cancel": lambda verb, mirror: [Event("cancel", timer=verb.fixed["timer"])],
    "shield": _shield,
    "take": _take,
    "gather": lambda verb, mirror: _absorbed(verb, "gather"),
    "pause": lambda verb, mirror: [Event("pause")],
    "resume": lambda verb, mirror: [Event("resume")],
    "advance": lambda verb, mirror: _entered(verb),
    "adopt": lambda verb, mirror: _entered(verb),
    "repair": lambda verb, mirror: [],
}
