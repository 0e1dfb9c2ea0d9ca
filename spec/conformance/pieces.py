"""A piece of a run, as TLC reads it: numbers instead of names, and only the messages and lanes that it concerns."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from celery_lanes.protocol import keys
from spec.conformance.events import Event
from spec.conformance.mirror import Abstract, Line, Mirror
from spec.conformance.monitor import Call
from spec.tlc import Answer, check, module_text

GONE: Abstract = ("none", "", 0, False, False, False, False, 1, False, False, False, "")
_CHECKED_FENCE = ("settle", "release", "died", "delay", "bury", "renew", "shield", "unshield")
_REMEMBERED = ("append", "group", "hold", "malformed", "remember")
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
    timers: dict[str, bool] = field(default_factory=dict)
    limits: dict[str, Line] = field(default_factory=dict)
    gated: tuple[str, ...] = ()


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
        self.limits: dict[str, tuple[str, ...]] = {}
        self.permits: dict[str, list[str]] = {}
        self.holders: dict[str, str] = {}
        self.heads = dict(mirror.heads)
        self.timers: dict[str, bool] = {}
        self.seen: dict[str, bool] = {}
        self.onces: dict[str, str] = {}
        self.fences: defaultdict[str, set[int]] = defaultdict(set)

    def takes(self, events: Iterable[Event], max_deaths: int) -> bool:
        """False if a message has other keys than before, or a turn another limit: in TLA+ these are constant."""
        is_same = max_deaths == self.max_deaths or not self.steps
        return is_same and all((not each.lanes and not each.limits) or self._is_as_before(each) for each in events)

    def _is_as_before(self, event: Event) -> bool:
        message, old = event.message, self._mirror
        has_same_place = set(old.old_keys.get(message, event.lanes)) == set(event.lanes) and set(
            old.old_limits.get(message, event.limits)
        ) == set(event.limits)
        is_same_once = self.onces.get(message, event.once) == event.once
        return is_same_once and (has_same_place or old.is_unplaced(message))

    def add(self, at: int, call: Call, events: Sequence[Event]) -> None:
        mirror = self._mirror
        self._save(events)
        self.calls.append((at, call))
        covers = [self._covers(event) for event in events]
        self._note_starts(events)
        leased = self._leased_groups() if "group" in covers else []
        self.apply(call)
        covers = [
            self._joined(event, leased) if name == "group" else name for event, name in zip(events, covers, strict=True)
        ]
        if kept := mirror.changed_heads(call.at_s * 1000):
            for message in kept:
                mirror.save(message)
            events, covers = [Event("keep", kept=tuple(kept.items())), *events], ["keep", *covers]
        for message in mirror.changed:  # one that an unspecified call has added
            if not mirror.old_keys.get(message) and not mirror.old_limits.get(message):
                mirror.old_keys[message] = tuple(mirror.lanes_of(message))
                mirror.old_limits[message] = tuple(mirror.limits_of(message))
        self._add_steps([Step(event, at, name) for event, name in zip(events, covers, strict=True)], at)

    def _save(self, events: Iterable[Event]) -> None:
        """The messages and lanes that the events concern, as they are before them."""
        for event in events:
            if event.what in _REMEMBERED:
                self.onces[event.message] = event.once
                self.seen.setdefault(event.message, self._has_seen(event.once or event.message))
            for key in event.lanes:
                for each in self._mirror.save_lane(key):
                    self._mirror.save(each)
            if event.message:
                self._mirror.save(event.message, event.lanes, event.limits)

    def _add_steps(self, steps: list[Step], at: int) -> None:
        """With what Redis has after them. A call that changes nothing, and stands for no event, is not a step."""
        mirror = self._mirror
        records = {message: mirror.abstract(message) for message in mirror.changed}
        lanes = {key: mirror.lane(key) for key in mirror.moved}
        timers = {timer: timer in mirror.zsets[keys.TIMERS] for timer in mirror.timed}
        limits = {key: mirror.line(key) for key in mirror.contested_by(records)}
        is_same = all(mirror.old.get(each, GONE) == found for each, found in records.items())
        if not steps and is_same and not lanes and not timers and not limits:
            return
        gated = tuple(each for each in records if mirror.records.get(each, {}).get("state") == "gated")
        last = (steps or [Step(Event("nothing"), at, "nothing")])[-1]
        self.steps += [*steps[:-1], Step(last.event, at, last.covers, True, records, lanes, timers, limits, gated)]

    def _leased_groups(self) -> list[str]:
        records = self._mirror.records.items()
        return [name for name, record in records if "group" in record and record.get("state") == "leased"]

    def _joined(self, event: Event, leased: Iterable[str]) -> str:
        """What an append with a group has done: begun a group, joined one, or interrupted the run of one."""
        records = self._mirror.records
        if event.message in records:
            return "group"
        return "interrupt" if any("open" in records.get(name, {}) for name in leased) else "join"

    def _note_starts(self, events: Iterable[Event]) -> None:
        """Of the rates of lanes. A release of a message that never started takes its start back."""
        for event in events:
            if event.what == "lease":
                self._mirror.started(event.message, int(event.fence))
            elif event.what in ("release", "reconcile"):
                self._mirror.started(event.message, 0, never=True)

    def _has_seen(self, message: str) -> bool:
        scope, _, number = message.rpartition(":")
        return self._mirror.has_seen(scope, int(number))

    def _covers(self, event: Event) -> str:
        if not event.message:
            return event.what
        state, fence, *_ = self._mirror.abstract(event.message)
        if event.what in _CHECKED_FENCE and (state, fence) != ("leased", event.fence):
            return f"stale {event.what}"
        if event.what == "unnumbered":
            return "malformed"
        is_seen = event.what in ("append", "group") and self._has_seen(event.once or event.message)
        return "seen" if is_seen else event.what

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
        self.limits, self.permits = mirror.old_limits, mirror.old_permits
        self.timers = mirror.old_timers
        return self

    def from_call(self, stuck: int) -> Piece:
        """The steps of the call of a step, up to it, with the state before them."""
        at = self.steps[stuck].at
        piece = Piece(Mirror())
        piece.records, piece.lanes, piece.keys = dict(self.records), dict(self.lanes), self.keys
        piece.holders, piece.fences = self.holders, self.fences
        piece.limits, piece.permits = self.limits, dict(self.permits)
        piece.seen, piece.max_deaths = dict(self.seen), self.max_deaths
        piece.heads, piece.timers = dict(self.heads), dict(self.timers)
        for step in self.steps:
            if step.at == at:
                break
            piece.records |= step.records
            piece.lanes |= step.lanes
            piece.heads |= dict(step.event.kept)
            piece.timers |= step.timers
            piece.permits |= {key: [name for name, _, has in line if has] for key, line in step.limits.items()}
            piece.seen |= {step.event.message: True} if step.event.what in _REMEMBERED else {}
        piece.steps = [step for step in self.steps[: stuck + 1] if step.at == at]
        return piece


class _Names:
    """Numbers of messages, lanes and workers, from 1, and of the fences of each message in their order."""

    def __init__(self, piece: Piece) -> None:
        self.messages = sorted(piece.records)
        self.lanes = sorted({key for found in piece.keys.values() for key in found} | set(piece.lanes))
        of_steps = {key for step in piece.steps for key in step.limits}
        self.limits = sorted({key for found in piece.limits.values() for key in found} | {*piece.permits, *of_steps})
        self.timers = sorted(
            {*piece.timers, *(each for step in piece.steps for each in (step.event.timer, *step.timers))}
        )
        self.groups = ["", *sorted({step.event.group for step in piece.steps} | self._groups_in(piece) - {""})]
        workers = {step.event.worker for step in piece.steps} | set(piece.holders.values())
        self.workers = sorted(workers - {""})
        self._message = {name: n for n, name in enumerate(self.messages, 1)}
        self._lane = {name: n for n, name in enumerate(self.lanes, 1)}
        self._worker = {name: n for n, name in enumerate(self.workers, 1)}
        self._fence: dict[str, list[int]] = {}
        for name, record in piece.records.items():
            given = piece.fences[name] | ({int(record[1])} if record[1] else set())
            self._fence[name] = sorted(given)

    @staticmethod
    def _groups_in(piece: Piece) -> set[str]:
        of_steps = (record for step in piece.steps for record in step.records.values())
        return {record[-1] for record in (*piece.records.values(), *of_steps)}

    def timer(self, name: str) -> int:
        return self.timers.index(name) + 1 if name else 0

    def group(self, name: str) -> int:
        return self.groups.index(name)

    def message(self, name: str) -> int:
        return self._message.get(name, 0)

    def lane(self, name: str) -> int:
        return self._lane[name]

    def limit(self, name: str) -> int:
        return self.limits.index(name) + 1

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
        "heads": _tuple(f'"{piece.heads.get(name, "ready")}"' for name in names.messages),
        "timers": _set(names.timer(name) for name, is_set in piece.timers.items() if is_set),
        "size": _tuple(record[7] for record in of_messages),
        "open": _tuple(str(record[8]).upper() for record in of_messages),
        "stopped": _tuple(str(record[9]).upper() for record in of_messages),
        "shielded": _tuple(str(record[10]).upper() for record in of_messages),
        "group": _tuple(names.group(record[11]) for record in of_messages),
        "seen": _set(names.message(name) for name in names.messages if piece.seen.get(name)),
        "permits": _tuple(_set(map(names.message, piece.permits.get(key, ()))) for key in names.limits),
        **{
            index: _set(names.message(name) for name in names.messages if piece.records[name][3 + i])
            for i, index in enumerate(_INDEXES)
        },
    }
    constants = {
        "KeysOf": _tuple(_set(map(names.lane, piece.keys.get(name, ()))) for name in names.messages),
        "LimitsOf": _tuple(_set(map(names.limit, piece.limits.get(name, ()))) for name in names.messages),
        "Given": f"[{', '.join(f'{name} |-> {value}' for name, value in start.items())}]",
    }
    # TLC looks for PlusCal first, in a time that is quadratic in the length of a line.
    definitions = {name: value.replace(", ", ",\n") for name, value in constants.items()}
    definitions["Events"] = "<<\n" + ",\n".join(_event(step, names) for step in piece.steps) + "\n>>"
    return module_text("Trace", definitions)


def _event(step: Step, names: _Names) -> str:
    event = step.event
    records = (
        _tuple(
            [
                *(names.message(name), f'"{r[0]}"', names.fence(name, r[1]), r[2]),
                *(str(each).upper() for each in r[3:-1]),
                names.group(r[-1]),
            ]
        )
        for name, r in step.records.items()
        if names.message(name)
    )
    limits = (_tuple([names.limit(key), _line(step.limits[key], names)]) for key in sorted(step.limits))
    lanes = (_tuple([names.lane(key), _tuple(map(names.message, found))]) for key, found in step.lanes.items())
    fields = {
        "what": f'"{event.what}"',
        "message": names.message(event.message),
        "fence": names.fence(event.message, event.fence),
        "worker": names.worker(event.worker),
        "key": names.lane(event.lanes[0]) if event.lanes else 0,
        "group": names.group(event.group),
        "most": event.most,
        "interrupts": str(event.interrupts).upper(),
        "timer": names.timer(event.timer),
        "isAllowed": str(event.is_allowed).upper(),
        "unstoppable": _set(names.message(name) for name in event.unstoppable if names.message(name)),
        "kept": _tuple(_tuple([names.message(name), f'"{head}"']) for name, head in event.kept if names.message(name)),
        "timers": _tuple(_tuple([names.timer(t), str(is_set).upper()]) for t, is_set in step.timers.items()),
        "isLast": str(step.is_last).upper(),
        "records": _tuple(records),
        "lanes": _tuple(lanes),
        "limits": _tuple(limits),
        "gated": _set(names.message(name) for name in step.gated),
    }
    return f"[{', '.join(f'{name} |-> {value}' for name, value in fields.items())}]"


def _line(line: Line, names: _Names) -> str:
    return _tuple(_tuple([names.message(name), most, str(has_permit).upper()]) for name, most, has_permit in line)


def _config(names: _Names, max_deaths: int, *, judges: bool) -> str:
    return f"""CONSTANTS
  Messages = {_range(names.messages)}
  Keys = {_range(names.lanes)}
  Workers = {_range(names.workers)}
  KeysOf <- TheKeysOf
  LimitsOf <- TheLimitsOf
  Permits = 0
  Given <- TheGiven
  Events <- TheEvents
  Judges = {str(judges).upper()}
  Nobody = 0
  MaxDeaths = {max_deaths}
  Crashes = 0 Freezes = 0 Losses = 0 Repeats = 0 Returns = 0 Replays = 0
  Without = {{}} TimerMessages = {{}} Most = 1 Interrupts = FALSE Steers = FALSE Stops = 0
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
    for key, line in step.limits.items():
        held_by = {has: ", ".join(name for name, _, has_permit in line if has_permit is has) for has in (True, False)}
        lines.append(f"limit {key} in Redis: permits of {held_by[True] or 'none'}; waiting: {held_by[False] or 'none'}")
    return lines if expected else [*lines, "The specification has no such step from the state before"]


def _shown(record: Abstract) -> str:
    state, fence, died, *_, size, is_open, is_stopped, is_shielded, _ = record
    flags = {"open": is_open, "stopped": is_stopped, "shielded": is_shielded}
    more = [f"{size} messages"] * (size != 1) + [name for name, is_set in flags.items() if is_set]
    return ", ".join([state, f"fence {fence or 'none'}", f"died {died}", *more])


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
