"""The events of spec/Trace.tla that a call of a script stands for, by its arguments and by what it has changed.

The arguments say what was asked, such as to settle a message with a fence; the specification decides what that does.
What a script chooses itself (which messages it leases, which leases have expired) is taken from its commands.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from celery_lanes.protocol import keys
from celery_lanes.protocol.scripts import contract
from spec.conformance.mirror import Mirror
from spec.conformance.monitor import Call

#: Verbs that change no record that the specification has.
WITHOUT_EFFECT = ("look", "lose", "acknowledge", "timers_of", "end", "stage", "cancel")
_HEADER = re.compile(r"^-- (\w+): .*\n(?:--.*\n)*-- KEYS", re.MULTILINE)
_WRITES = ("HSET", "HDEL", "HINCRBY", "DEL", "UNLINK", "ZADD", "ZREM", "SET", "RENAME", "FLUSHALL", "FLUSHDB")
_SPECIFIED = (keys.MESSAGE, keys.LANE, keys.LEASES, keys.DELAYED, keys.DEAD)


@dataclass(frozen=True)
class Event:
    """One step of the specification; `adopt`: what Redis has is taken as it is, because the call is not specified."""

    what: str
    message: str = ""
    fence: str = ""
    worker: str = ""
    lanes: tuple[str, ...] = ()


class NotSpecifiedError(Exception):
    """The call uses a part of the protocol that the specification does not have; the text names it."""


@dataclass(frozen=True)
class Script:
    """What a call of it needs: its name, its fixed arguments, and how many arguments repeat."""

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
    fixed, group = contract(named[-1], source[source.rindex(f"-- {named[-1]}: ") :])
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
    if any(new and {new, old} & {"held", "collecting", "gated", "committing"} for new, old in states):
        raise NotSpecifiedError("held, collecting, gated or committing")
    if any(command[0].upper() == "PUBLISH" for command in verb.inner):
        raise NotSpecifiedError("interrupts and stops")
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
        Event("enter", message, lanes=tuple(keys.lane_keys(fields.get("lanes", ""))))
        for message, fields in verb.changes()
        if "seq" in fields and message not in known
    ]


def _append(verb: Verb, mirror: Mirror) -> list[Event]:
    if verb.keys and not any(command[0].upper() not in ("HGET", "TIME", "EXISTS") for command in verb.inner):
        return []  # the guard has another fence
    events = []
    for message, queue, _, scope, number, problem, group, after_run, stops, rate, lanes in verb.rows:
        if group or stops == "1":
            raise NotSpecifiedError("an append with a group or a stop")
        if rate or keys.PACED in lanes or keys.LIMITED in lanes:
            raise NotSpecifiedError("an append with a rate or a limit")
        if not queue:
            events.append(Event("remember", f"{scope}:{number}"))
            continue
        record = mirror.records.get(message, {})
        if after_run == "1" and record.get("state") in ("leased", "committing"):
            raise NotSpecifiedError("a successor")
        if scope and f"{scope}:{number}" != message:
            raise NotSpecifiedError("an append that is remembered by another name")
        what = "malformed" if problem else "append" if scope else "enter"
        events.append(Event(what, message, lanes=tuple(dict.fromkeys(filter(None, lanes.split("\n"))))))
    return [*_entered(verb, [event.message for event in events]), *events]


def _turn(verb: Verb, mirror: Mirror) -> list[Event]:
    events = [Event("settle", message, fence) for message, fence in verb.rows] + _entered(verb)
    for message, fields in verb.changes():
        if fields.get("state") == "leased":
            events.append(Event("lease", message, fields["fence"], fields["holder"]))
        elif fields.get("state") == "buried":
            events.append(Event("killer", message))
    return events


def _commit(verb: Verb, mirror: Mirror) -> list[Event]:
    if verb.fixed["staged"] != "0":
        raise NotSpecifiedError("a large commit")
    return [Event("settle", verb.fixed["id"], verb.fixed["fence"]), *_entered(verb)]


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
    return [*events, *_entered(verb)]


def _reconcile(verb: Verb, mirror: Mirror) -> list[Event]:
    holder = verb.fixed["holder"]
    return [
        Event("reconcile", each, worker=holder) for each, fields in verb.changes() if fields.get("state") == "ready"
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
    "schedule": lambda verb, mirror: _entered(verb),
    "advance": lambda verb, mirror: _entered(verb),
    "repair": lambda verb, mirror: [],
}
