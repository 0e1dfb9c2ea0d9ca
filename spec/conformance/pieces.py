"""A piece of a run, as TLC reads it: numbers instead of names, and only the messages and lanes that it concerns."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from celery_lanes.protocol import keys
from spec.conformance.events import Event
from spec.conformance.mirror import Abstract, Mirror
from spec.conformance.monitor import Call
from spec.tlc import Answer, check

GONE: Abstract = ("none", "", 0, False, False, False, False)
_CHECKED_FENCE = ("settle", "release", "died", "delay", "bury", "renew")
_INDEXES = ("ready", "leases", "delayed", "dead")


@dataclass(frozen=True)
class Step:
    """An event, and after the last one of a call: the messages and lanes that it has touched, as Redis has them."""

    event: Event
    at: int  #: index of its call
    covers: str
    is_last: bool = False
    records: dict[str, Abstract] = field(default_factory=dict)
    lanes: dict[str, list[str]] = field(default_factory=dict)


class Piece:
    """Steps, and the state before them. Filled call by call, which also applies the calls to the mirror."""

    def __init__(self, mirror: Mirror, before: Iterable[tuple[int, Call]] = ()) -> None:
        self._mirror = mirror
        mirror.begin()
        self.calls = [*before]  #: with their places in the segment, and those before
        self.steps: list[Step] = []
        self.max_deaths = 5  #: of the turns
        self.records: dict[str, Abstract] = {}
        self.lanes: dict[str, list[str]] = {}
        self.keys: dict[str, tuple[str, ...]] = {}
        self.holders: dict[str, str] = {}
        self.seen: dict[str, bool] = {}
        self.fences: defaultdict[str, set[int]] = defaultdict(set)

    def takes(self, events: Iterable[Event], max_deaths: int) -> bool:
        """False if a message has other lanes than before, or a turn another limit: in TLA+ these are constant."""
        known = self._mirror.old_keys
        is_same = max_deaths == self.max_deaths or not self.steps
        return is_same and all(
            not each.lanes or set(known.get(each.message, each.lanes)) == set(each.lanes) for each in events
        )

    def add(self, at: int, call: Call, events: Sequence[Event]) -> None:
        mirror = self._mirror
        for event in filter(lambda event: event.message, events):
            if event.what in ("append", "malformed", "remember"):
                self.seen.setdefault(event.message, self._has_seen(event.message))
            for key in event.lanes:
                for each in mirror.save_lane(key):
                    mirror.save(each)
            mirror.save(event.message, event.lanes)
        self.calls.append((at, call))
        covers = [self._covers(event) for event in events]
        self.apply(call)
        for message in mirror.changed:  # one that an unspecified call has added
            if not mirror.old_keys.get(message):
                mirror.old_keys[message] = tuple(mirror.lanes_of(message))
        records = {message: mirror.abstract(message) for message in mirror.changed}
        lanes = {key: mirror.lane(key) for key in mirror.moved}
        if not events and all(mirror.old.get(each, GONE) == found for each, found in records.items()) and not lanes:
            return
        steps = [Step(event, at, name) for event, name in zip(events, covers, strict=True)]
        last = (steps or [Step(Event("nothing"), at, "nothing")])[-1]
        self.steps += [*steps[:-1], Step(last.event, at, last.covers, True, records, lanes)]

    def _has_seen(self, message: str) -> bool:
        scope, _, number = message.rpartition(":")
        return self._mirror.has_seen(scope, int(number))

    def _covers(self, event: Event) -> str:
        if event.what == "adopt":
            return event.what
        state, fence, *_ = self._mirror.abstract(event.message)
        if event.what in _CHECKED_FENCE and (state, fence) != ("leased", event.fence):
            return f"stale {event.what}"
        return "seen" if event.what == "append" and self._has_seen(event.message) else event.what

    def apply(self, call: Call) -> None:
        self._mirror.forget()
        for command in call.inner or [call.arguments]:
            if command[0].upper() == "HSET" and command[1].startswith(keys.MESSAGE):
                fields = dict(zip(command[2::2], command[3::2], strict=True))
                self.fences[command[1].removeprefix(keys.MESSAGE)].update(map(int, filter(None, [fields.get("fence")])))
            self._mirror.apply(command)

    def closed(self) -> Piece:
        """With the state before the first step."""
        mirror = self._mirror
        self.records, self.lanes = mirror.old, mirror.old_lanes
        self.keys, self.holders = mirror.old_keys, mirror.holders
        return self

    def from_call(self, stuck: int) -> Piece:
        """The steps of the call of a step, up to it, with the state before them."""
        at = self.steps[stuck].at
        piece = Piece(Mirror())
        piece.records, piece.lanes, piece.keys = dict(self.records), dict(self.lanes), self.keys
        piece.holders, piece.fences = self.holders, self.fences
        piece.seen, piece.max_deaths = dict(self.seen), self.max_deaths
        for step in self.steps:
            if step.at == at:
                break
            piece.records |= step.records
            piece.lanes |= step.lanes
            piece.seen |= {step.event.message: True} if step.event.what in ("append", "remember") else {}
        piece.steps = [step for step in self.steps[: stuck + 1] if step.at == at]
        return piece


class _Names:
    """Numbers of messages, lanes and workers, from 1, and of the fences of each message in their order."""

    def __init__(self, piece: Piece) -> None:
        self.messages = sorted(piece.records)
        self.lanes = sorted({key for found in piece.keys.values() for key in found} | set(piece.lanes))
        workers = {step.event.worker for step in piece.steps} | set(piece.holders.values())
        self.workers = sorted(workers - {""})
        self._message = {name: n for n, name in enumerate(self.messages, 1)}
        self._lane = {name: n for n, name in enumerate(self.lanes, 1)}
        self._worker = {name: n for n, name in enumerate(self.workers, 1)}
        self._fence: dict[str, list[int]] = {}
        for name, record in piece.records.items():
            given = piece.fences[name] | ({int(record[1])} if record[1] else set())
            self._fence[name] = sorted(given)

    def message(self, name: str) -> int:
        return self._message.get(name, 0)

    def lane(self, name: str) -> int:
        return self._lane[name]

    def worker(self, name: str) -> int:
        return self._worker.get(name, 0)

    def fence(self, message: str, fence: str) -> int:
        """0: none; -1: one that the message did not get in this piece."""
        if not fence:
            return 0
        given = self._fence.get(message, [])
        return given.index(int(fence)) + 1 if fence.isdigit() and int(fence) in given else -1


def stuck_at(piece: Piece) -> int:
    """The index of the first step that is none of the specification; their number if all are."""
    answer = _asked(piece, judges=True)
    return -1 if answer.violated else answer.depth - 1


def _asked(piece: Piece, *, judges: bool) -> Answer:
    names = _Names(piece)
    return check(_module(piece, names), _config(names, piece.max_deaths, judges=judges), is_short=True)


def _module(piece: Piece, names: _Names) -> str:
    of_messages = [piece.records[name] for name in names.messages]
    start = {
        "state": _tuple(f'"{record[0]}"' for record in of_messages),
        "fence": _tuple(names.fence(name, piece.records[name][1]) for name in names.messages),
        "died": _tuple(record[2] for record in of_messages),
        "holder": _tuple(names.worker(piece.holders.get(name, "")) for name in names.messages),
        "lane": _tuple(_tuple(map(names.message, piece.lanes.get(key, ()))) for key in names.lanes),
        "seen": _set(names.message(name) for name in names.messages if piece.seen.get(name)),
        **{
            index: _set(names.message(name) for name in names.messages if piece.records[name][3 + i])
            for i, index in enumerate(_INDEXES)
        },
    }
    events = ",\n".join(_event(step, names) for step in piece.steps)
    keys_of = _tuple(_set(map(names.lane, piece.keys.get(name, ()))) for name in names.messages)
    return f"""---- MODULE Run ----
EXTENDS Trace
TheKeysOf == {keys_of}
TheStart == [{", ".join(f"{name} |-> {value}" for name, value in start.items())}]
TheEvents == <<
{events}
>>
====
"""


def _event(step: Step, names: _Names) -> str:
    event = step.event
    records = (
        _tuple(
            [names.message(name), f'"{r[0]}"', names.fence(name, r[1]), r[2], *(str(each).upper() for each in r[3:])]
        )
        for name, r in step.records.items()
        if names.message(name)
    )
    lanes = (_tuple([names.lane(key), _tuple(map(names.message, found))]) for key, found in step.lanes.items())
    fields = {
        "what": f'"{event.what}"',
        "message": names.message(event.message),
        "fence": names.fence(event.message, event.fence),
        "worker": names.worker(event.worker),
        "isLast": str(step.is_last).upper(),
        "records": _tuple(records),
        "lanes": _tuple(lanes),
    }
    return f"[{', '.join(f'{name} |-> {value}' for name, value in fields.items())}]"


def _config(names: _Names, max_deaths: int, *, judges: bool) -> str:
    return f"""CONSTANTS
  Messages = {_range(names.messages)}
  Keys = {_range(names.lanes)}
  Workers = {_range(names.workers)}
  KeysOf <- TheKeysOf
  Given <- TheStart
  Events <- TheEvents
  Judges = {str(judges).upper()}
  Nobody = 0
  MaxDeaths = {max_deaths}
  Crashes = 0 Freezes = 0 Losses = 0 Repeats = 0 Returns = 0 Replays = 0
  Without = {{}}
SPECIFICATION TraceSpec
INVARIANT StartIsSound
INVARIANT NotShown
"""


def both_states(piece: Piece, stuck: int) -> list[str]:
    """What Redis has after the call, and what the specification has, for each message that the call concerns."""
    if stuck < 0:
        return [
            "The state before the piece breaks an invariant of the specification: OneState, HeadActive or Exclusion"
        ]
    call = piece.from_call(stuck)
    step, expected = call.steps[-1], _expected(call)
    lines = []
    for name in sorted({step.event.message, *step.records, *expected} - {""}):
        before, found = call.records.get(name, GONE), step.records.get(name, call.records.get(name, GONE))
        lines += [f"{name}", f"  before            {_shown(before)}", f"  then in Redis     {_shown(found)}"]
        if expected:
            lines.append(f"  the specification {expected.get(name, 'not known')}")
    return lines if expected else [*lines, "The specification has no such step from the state before"]


def _shown(record: Abstract) -> str:
    state, fence, died, *_ = record
    return f"{state}, fence {fence or 'none'}, died {died}"


def _expected(call: Piece) -> dict[str, str]:
    """The messages that differ from those in Redis after the call, as the specification has them; empty: no step."""
    names, step = _Names(call), call.steps[-1]
    output = _asked(call, judges=False).output
    last = output.rpartition("\nState ")[2] if "NotShown is violated" in output else ""
    states = re.findall(r'"(\w+)"', _value(last, "state"))
    fences, died = (re.findall(r"-?\d+", _value(last, name)) for name in ("fence", "died"))
    found = {}
    for i, name in enumerate(names.messages if states else ()):
        record = step.records.get(name, call.records[name])
        numbered = (record[0], names.fence(name, record[1]), record[2])
        if (states[i], int(fences[i]), int(died[i])) != numbered or name == step.event.message:
            is_old = int(fences[i]) == names.fence(name, call.records[name][1])
            kept = "no fence" if fences[i] == "0" else "the fence it had" if is_old else "a new fence"
            found[name] = f"{states[i]}, {kept}, died {died[i]}"
    return found


def _value(state: str, name: str) -> str:
    found = re.search(rf"/\\ {name} = (.*?)(?=\n/\\|\n\n|\Z)", state, re.DOTALL)
    return found[1] if found else ""


def _tuple(items: Iterable[object]) -> str:
    return f"<<{', '.join(map(str, items))}>>"


def _set(items: Iterable[object]) -> str:
    return f"{{{', '.join(map(str, items))}}}"


def _range(names: Sequence[str]) -> str:
    return _set(range(1, len(names) + 1))
