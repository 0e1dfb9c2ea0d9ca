"""The records, lanes and indexes of the server, from a snapshot and the commands since."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from celery_lanes.protocol import keys

INDEXES = (keys.LEASES, keys.DELAYED, keys.DEAD)

#: state, fence, died, whether it is in a ready list, in LEASES, in DELAYED and in DEAD; then size, whether it is open,
#: stopped and shielded, and its group
Abstract = tuple[str, str, int, bool, bool, bool, bool, int, bool, bool, bool, str]
#: The messages of a limit by age: each with how many may run with it, and whether it has a permit.
Line = list[tuple[str, int, bool]]
#: Within this time of a moment, what Redis has done says whether it was before or after it.
ABOUT_MS = 20.0


@dataclass
class Mirror:
    """`changed`, `moved`: the messages and lanes that commands have touched since the last call. `old`, `old_lanes`,
    `old_keys`, `holders`: messages and lanes as they were at the last `begin`, if they were touched or saved since.
    """

    records: dict[str, dict[str, str]] = field(default_factory=dict)
    zsets: defaultdict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    queues: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    strings: dict[str, str] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    starts_ms: dict[str, float] = field(default_factory=dict)  #: when the last message of a lane was handed out
    heads: dict[str, str] = field(default_factory=dict)  #: of messages that are kept back
    old_timers: dict[str, bool] = field(default_factory=dict)
    timed: set[str] = field(default_factory=set)  #: timers that were set or removed since the last call
    changed: set[str] = field(default_factory=set)
    moved: set[str] = field(default_factory=set)
    old: dict[str, Abstract] = field(default_factory=dict)
    old_lanes: dict[str, list[str]] = field(default_factory=dict)
    old_keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    old_limits: dict[str, tuple[str, ...]] = field(default_factory=dict)  #: of messages
    old_permits: dict[str, list[str]] = field(default_factory=dict)  #: of limits
    contested: set[str] = field(default_factory=set)  #: limits that commands have touched since the last call
    holders: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: list[list[Any]]) -> Mirror:
        mirror = cls()
        for key, kind, content in snapshot:
            if key == keys.PAUSED:
                mirror.paused = {name.removeprefix("lane:") for name in content[::2]}
            elif kind == "hash":
                mirror.records[key.removeprefix(keys.MESSAGE)] = dict(zip(content[::2], content[1::2], strict=True))
            elif kind == "zset":
                mirror.zsets[key] = dict(zip(content[::2], map(float, content[1::2]), strict=True))
            elif kind == "list":
                mirror.queues[key] = list(content)
            else:
                mirror.strings[key] = content[0]
        return mirror

    def begin(self) -> None:
        self.old, self.old_lanes, self.old_keys, self.holders = {}, {}, {}, {}
        self.old_timers, self.old_limits, self.old_permits = {}, {}, {}

    def forget(self) -> None:
        self.changed, self.moved, self.timed, self.contested = set(), set(), set(), set()

    def save(self, message: str, lanes: Sequence[str] = (), limits: Sequence[str] = ()) -> None:
        """Saves a message, the messages of its lanes and limits, and so on, as they are now."""
        new = [message]
        if self.is_unplaced(message):
            del self.old[message]
        while new:
            each = new.pop()
            if each in self.old:
                continue
            self.old[each], self.holders[each] = self.abstract(each), self.records.get(each, {}).get("holder", "")
            is_new = each == message and each not in self.records
            self.old_keys[each] = tuple(lanes if is_new else self.lanes_of(each))
            for key in self.old_keys[each]:
                new += self.save_lane(key)
            self.old_limits[each] = tuple(limits if is_new else self.limits_of(each))
            for key in self.old_limits[each]:
                new += self.save_limit(key)

    def is_unplaced(self, message: str) -> bool:
        """True if only a timer has named the message: it gets its lanes and limits when it is fired."""
        has_place = self.old_keys.get(message) or self.old_limits.get(message)
        is_absent = message in self.old and self.old[message][0] == "none" and message not in self.records
        return is_absent and not has_place

    def save_limit(self, key: str) -> list[str]:
        if key not in self.old_permits:
            self.old_permits[key] = [message for message, _, has_permit in self.line(key) if has_permit]
        return [*self.zsets.get(keys.LIMIT + key, ())]

    def save_lane(self, key: str) -> list[str]:
        if key not in self.old_lanes:
            self.old_lanes[key] = self.lane(key)
        return self.old_lanes[key]

    def abstract(self, message: str) -> Abstract:
        record = self.records.get(message, {})
        indexes = [message in self.zsets[name] for name in INDEXES]
        state, queue = record.get("state", "none"), record.get("queue", "")
        queued = state == "ready" and message in self.queues[queue]  # an entry may be left over in another state
        if state == "gated":  # which is ready for the core
            state, queued = "ready", True
        died = record.get("died", "0")
        size = record.get("size", "1")
        fields = (
            int(size) if size.isdigit() else -1,
            "open" in record,
            "stopped" in record,
            "shielded" in record,
            record.get("group", ""),
        )
        found = int(died) if died.isdigit() else -1
        return state, record.get("fence", ""), found, queued, *indexes, *fields  # type: ignore[return-value]

    def lanes_of(self, message: str) -> list[str]:
        return keys.lane_keys(self.records.get(message, {}).get("lanes", ""))

    def limits_of(self, message: str) -> list[str]:
        return keys.limit_keys(self.records.get(message, {}).get("lanes", ""))

    def contested_by(self, messages: Iterable[str]) -> set[str]:
        """The limits that commands have touched, and those of these messages."""
        return self.contested | {key for message in messages for key in self.limits_of(message)}

    def line(self, key: str) -> Line:
        found = self.zsets.get(keys.LIMIT + key, {})
        by_age = sorted(found, key=lambda message: int(self.records[message]["seq"]))
        return [(message, self._may_run(message, key), found[message] < 0) for message in by_age]

    def _may_run(self, message: str, key: str) -> int:
        lines = [each for each in self.records[message]["lanes"].split("\n") if each.startswith(keys.LIMITED)]
        return next(int(line[1:].partition(" ")[0]) for line in lines if line.partition(" ")[2] == key)

    def head(self, message: str, now_ms: float) -> str:
        """The state of the message once it is first in all its lanes (Core.tla, heads)."""
        record = self.records.get(message, {})
        stored = record.get("lanes", "")
        lanes = keys.lane_keys(stored)
        if self.paused.intersection(lanes):
            return "waiting"
        paced = [lane for lane in lanes if keys.PACED in stored and lane in self.zsets[keys.PACES]]
        until_ms = max((self.zsets[keys.PACES][lane] for lane in paced), default=0.0)
        is_early = record.get("state") == "delayed" if abs(until_ms - now_ms) < ABOUT_MS else until_ms > now_ms
        if is_early and "stopped" not in record:
            return "delayed"
        return "collecting" if message in self.zsets[keys.COLLECTING] else "ready"

    def changed_heads(self, now_ms: float) -> dict[str, str]:
        """The messages that become something else now when they are first than at the last call of this."""
        lanes = {lane for lane in (*self.paused, *self.zsets[keys.PACES]) if keys.LANE + lane in self.zsets}
        behind = {message for lane in lanes for message in self.zsets[keys.LANE + lane]}
        found = {}
        for message in {*behind, *self.zsets[keys.COLLECTING], *self.heads}:
            head = self.head(message, now_ms)
            if head != self.heads.get(message, "ready"):
                found[message] = head
        self.heads = {name: head for name, head in (self.heads | found).items() if head != "ready"}
        return found

    def is_too_early(self, message: str, fence_us: int) -> bool:
        """True if a message of one of its lanes started less than the interval of that lane before."""
        record = self.records.get(message, {})
        lines = record.get("lanes", "").split("\n")
        if not lines[-1].startswith(keys.PACED) or "stopped" in record:
            return False
        for lane, interval_ms in zip(lines, lines[-1][1:].split(" "), strict=False):
            if self.starts_ms.get(lane, 0.0) + float(interval_ms) > fence_us / 1000 + ABOUT_MS:
                return True
        return False

    def started(self, message: str, fence_us: int, *, never: bool = False) -> None:
        for lane in self.lanes_of(message):
            self.starts_ms[lane] = 0.0 if never else fence_us / 1000

    def lane(self, key: str) -> list[str]:
        found = self.zsets[keys.LANE + key]
        return sorted(found, key=lambda message: (found[message], message))

    def has_seen(self, scope: str, number: int) -> bool:
        bitmap = self.strings.get(f"{keys.SEEN}{scope}:{number // keys.SEEN_BLOCK}", "")
        at = number % keys.SEEN_BLOCK
        return at // 8 < len(bitmap) and bool(ord(bitmap[at // 8]) >> (7 - at % 8) & 1)

    def apply(self, command: Sequence[str]) -> None:
        verb, *rest = command
        for name in rest:
            if name.startswith(keys.LANE):
                for each in self.save_lane(name.removeprefix(keys.LANE)):
                    self.save(each)
            elif name.startswith(keys.MESSAGE):
                self.save(name.removeprefix(keys.MESSAGE))
            elif name.startswith(keys.LIMIT):
                for each in self.save_limit(name.removeprefix(keys.LIMIT)):
                    self.save(each)
            elif name in self.records:
                self.save(name)
        method = getattr(self, f"_{verb.lower()}", None)
        if method is not None and rest:
            method(*rest)

    # -- commands

    def _hset(self, key: str, *fields: str) -> None:
        if key.startswith(keys.MESSAGE):
            message = key.removeprefix(keys.MESSAGE)
            self.records.setdefault(message, {}).update(zip(fields[::2], fields[1::2], strict=True))
            self.changed.add(message)

    def _hsetnx(self, key: str, name: str, _: str) -> None:
        if key == keys.PAUSED:
            self.paused.add(name.removeprefix("lane:"))

    def _hdel(self, key: str, *fields: str) -> None:
        if key == keys.PAUSED:
            self.paused -= {name.removeprefix("lane:") for name in fields}
        record = self.records.get(key.removeprefix(keys.MESSAGE), {}) if key.startswith(keys.MESSAGE) else {}
        for each in fields:
            record.pop(each, None)
        self.changed.update([key.removeprefix(keys.MESSAGE)] * bool(record))

    def _hincrby(self, key: str, name: str, by: str) -> None:
        if key.startswith(keys.MESSAGE):
            record = self.records.get(key.removeprefix(keys.MESSAGE), {})
            record[name] = str(int(record.get(name, "0")) + int(by))
            self.changed.add(key.removeprefix(keys.MESSAGE))

    def _del(self, *names: str) -> None:
        for key in names:
            if key.startswith(keys.MESSAGE):
                self.records.pop(key.removeprefix(keys.MESSAGE), None)
                self.changed.add(key.removeprefix(keys.MESSAGE))
            elif key in self.zsets:
                self._touch(key, *self.zsets.pop(key))
            self.queues.pop(key, None)

    _unlink = _del

    def _zadd(self, key: str, *entries: str) -> None:
        found = self.zsets[key]
        self._note_timers(key, entries[1::2])
        for score, member in zip(entries[::2], entries[1::2], strict=True):
            found[member] = float(score)
        self._touch(key, *entries[1::2])

    def _zincrby(self, key: str, by: str, member: str) -> None:
        found = self.zsets[key]
        found[member] = found.get(member, 0.0) + float(by)
        for lane in self.lanes_of(member) if key == keys.LEASES else [member] if key == keys.PACES else []:
            self.starts_ms[lane] = self.starts_ms.get(lane, 0.0) + float(by)  # a simulation lets time pass

    def _zremrangebyscore(self, key: str, _: str, most: str) -> None:
        found = self.zsets[key] if key == keys.PACES else {}
        for member in [each for each, score in found.items() if score <= float(most)]:
            del found[member]

    def _zrem(self, key: str, *members: str) -> None:
        self._note_timers(key, members)
        for member in members:
            self.zsets[key].pop(member, None)
        self._touch(key, *members)

    def _note_timers(self, key: str, members: Sequence[str]) -> None:
        for member in members if key == keys.TIMERS else ():
            self.old_timers.setdefault(member, member in self.zsets[key])

    def _touch(self, zset: str, *members: str) -> None:
        if zset.startswith(keys.LANE):
            self.moved.add(zset.removeprefix(keys.LANE))
        elif zset.startswith(keys.LIMIT):
            self.contested.add(zset.removeprefix(keys.LIMIT))
        elif zset in INDEXES:
            self.changed.update(members)
        elif zset == keys.TIMERS:
            self.timed.update(members)

    def _lpush(self, key: str, *values: str) -> None:
        for value in values:
            self.queues[key].insert(0, value)
        self.changed.update(value for value in values if value in self.records)

    def _rpush(self, key: str, *values: str) -> None:
        self.queues[key].extend(values)
        self.changed.update(value for value in values if value in self.records)

    def _rpop(self, key: str, count: str = "1") -> None:
        entries = self.queues[key]
        for _ in range(min(int(count), len(entries))):
            if entries[-1] in self.records:
                self.save(entries[-1])
                self.changed.add(entries[-1])
            entries.pop()

    def _lrem(self, key: str, _: str, value: str) -> None:
        if value in self.queues[key]:
            self.queues[key].remove(value)
        if value in self.records:
            self.changed.add(value)

    def _setrange(self, key: str, offset: str, text: str) -> None:
        if key.startswith(keys.SEEN):
            found, at = self.strings.get(key, ""), int(offset)
            found = found.ljust(at + len(text), "\0")
            self.strings[key] = found[:at] + text + found[at + len(text) :]
