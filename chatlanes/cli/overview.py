"""The state of the lanes in figures: per bot, per queue, and the lanes with the most waiting. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from chatlanes.lanes.monitoring.inspection import Record

STATES = ("held", "waiting", "ready", "leased", "delayed", "buried")
#: So many of the chats are told.
MOST_CHATS = 10


@dataclass
class Figures:
    """Of a bot, or of one of its queues. `oldest_us`: when the oldest one was appended; None: nothing is there."""

    states: Counter[str] = field(default_factory=Counter)
    oldest_us: int | None = None
    #: Of so many only the number is known: there are too many to look at each.
    more: int = 0
    #: Settled in a second, when two looks have been compared.
    rate: float | None = None
    #: Medians over the same time, of a bot; None: nothing started, or ended.
    wait_s: float | None = None
    run_s: float | None = None

    @property
    def backlog(self) -> int:
        return sum(self.states.values()) - self.states["buried"] + self.more

    def add(self, record: Record) -> None:
        self.states[record.state] += 1
        if record.state != "buried":
            self.oldest_us = min(record.appended_us, self.oldest_us or record.appended_us)

    def as_json(self, now_us: int) -> dict[str, Any]:
        oldest_s = None if self.oldest_us is None else round((now_us - self.oldest_us) / 1e6, 3)
        states = {state: self.states[state] for state in STATES}
        return {"backlog": self.backlog, **states, "not_looked_at": self.more, "oldest_s": oldest_s, "rate": self.rate}


@dataclass
class BusyLane:
    """A lane with much in it. The others wait for `first`."""

    lane: str
    waiting: int
    first: Record
    title: str = ""


class TelegramPause(NamedTuple):
    """A pause that Telegram asked for: of `the bot`, a chat or a method."""

    bot: str
    what: str
    left_s: float


@dataclass
class Overview:
    """Of a moment; `now_us` is Redis' clock."""

    now_us: int
    bots: dict[str, Figures]
    queues: dict[str, dict[str, Figures]]
    busy_lanes: list[BusyLane]
    #: What is paused, and since when, ms; as inspection.paused has it.
    paused: dict[str, int] = field(default_factory=dict)
    flood_waits: list[TelegramPause] = field(default_factory=list)


def overview(
    now_us: int, records: Iterable[Record], names: Mapping[str, str], queues: Iterable[tuple[str, str]]
) -> Overview:
    """`names` are those of the bots by their groups of queues; `queues` are (group, queue), told also when empty."""
    bots = {name: Figures() for name in names.values()}
    by_queue: dict[str, dict[str, Figures]] = {name: {} for name in bots}
    for group, queue in queues:
        by_queue[names.get(group, group)][queue] = Figures()
    lanes: Counter[str] = Counter()
    firsts: dict[str, Record] = {}
    for record in records:
        bot = names.get(record.group, record.group)
        bots.setdefault(bot, Figures()).add(record)
        by_queue.setdefault(bot, {}).setdefault(record.queue, Figures()).add(record)
        if record.state != "buried":
            for key in record.lanes:
                lanes[key] += 1
                if key not in firsts or record.appended_us < firsts[key].appended_us:
                    firsts[key] = record
    busy_lanes = [BusyLane(key, number - 1, firsts[key]) for key, number in lanes.most_common(MOST_CHATS) if number > 1]
    return Overview(now_us, bots, by_queue, busy_lanes)
