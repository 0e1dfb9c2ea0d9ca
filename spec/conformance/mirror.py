"""The records, lanes and indexes of the server, from a snapshot and the commands since."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from celery_lanes.protocol import keys

INDEXES = (keys.LEASES, keys.DELAYED, keys.DEAD)

#: state, fence, died, whether it is in a ready list, in LEASES, in DELAYED and in DEAD
Abstract = tuple[str, str, int, bool, bool, bool, bool]


@dataclass
class Mirror:
    """`changed`, `moved`: the messages and lanes that commands have touched since the last call. `old`, `old_lanes`,
    `old_keys`, `holders`: messages and lanes as they were at the last `begin`, if they were touched or saved since.
    """

    records: dict[str, dict[str, str]] = field(default_factory=dict)
    zsets: defaultdict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    queues: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    strings: dict[str, str] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    moved: set[str] = field(default_factory=set)
    old: dict[str, Abstract] = field(default_factory=dict)
    old_lanes: dict[str, list[str]] = field(default_factory=dict)
    old_keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    holders: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: list[list[Any]]) -> Mirror:
        mirror = cls()
        for key, kind, content in snapshot:
            if kind == "hash":
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

    def forget(self) -> None:
        self.changed, self.moved = set(), set()

    def save(self, message: str, lanes: Sequence[str] = ()) -> None:
        """Saves a message, the messages of its lanes, and so on, as they are now."""
        new = [message]
        while new:
            each = new.pop()
            if each in self.old:
                continue
            self.old[each], self.holders[each] = self.abstract(each), self.records.get(each, {}).get("holder", "")
            self.old_keys[each] = tuple(self.lanes_of(each)) or tuple(lanes if each == message else ())
            for key in self.old_keys[each]:
                new += self.save_lane(key)

    def save_lane(self, key: str) -> list[str]:
        if key not in self.old_lanes:
            self.old_lanes[key] = self.lane(key)
        return self.old_lanes[key]

    def abstract(self, message: str) -> Abstract:
        record = self.records.get(message, {})
        indexes = [message in self.zsets[name] for name in INDEXES]
        state, queue = record.get("state", "none"), record.get("queue", "")
        queued = state == "ready" and message in self.queues[queue]  # an entry may be left over in another state
        died = record.get("died", "0")
        return state, record.get("fence", ""), int(died) if died.isdigit() else -1, queued, *indexes  # type: ignore[return-value]

    def lanes_of(self, message: str) -> list[str]:
        return [key for key in self.records.get(message, {}).get("lanes", "").split("\n") if key]

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

    def _hdel(self, key: str, *fields: str) -> None:
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
        for score, member in zip(entries[::2], entries[1::2], strict=True):
            found[member] = float(score)
        self._touch(key, *entries[1::2])

    def _zrem(self, key: str, *members: str) -> None:
        for member in members:
            self.zsets[key].pop(member, None)
        self._touch(key, *members)

    def _touch(self, zset: str, *members: str) -> None:
        if zset.startswith(keys.LANE):
            self.moved.add(zset.removeprefix(keys.LANE))
        elif zset in INDEXES:
            self.changed.update(members)

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
