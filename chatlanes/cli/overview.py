"""Figures of the lanes: per bot, per queue, and the lanes with the most waiting updates. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from chatlanes.lanes.monitoring.inspection import Record, WaitingTimers

STATES = ("held", "waiting", "collecting", "ready", "leased", "delayed", "buried")
#: The number of busiest lanes that are shown.
MOST_CHATS = 10


@dataclass
class Figures:
    """The figures of a bot or of one of its queues. `oldest_us`: when its oldest update was appended; None: none."""

    states: Counter[str] = field(default_factory=Counter)
    oldest_us: int | None = None
    #: Further updates that were only counted, because there are too many to examine each.
    more: int = 0
    #: Updates settled per second, once two samples have been compared.
    rate: float | None = None
    #: Medians over the same time, only for a bot; None: no handler started, or ended.
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
    """A lane with several updates. The others wait for `first`."""

    lane: str
    waiting: int
    first: Record
    title: str = ""


class TelegramPause(NamedTuple):
    """A pause after a 429, of `the bot`, a chat or a method."""

    bot: str
    what: str
    left_s: float


@dataclass
class Overview:
    """The figures at one moment; `now_us` is Redis' clock."""

    now_us: int
    bots: dict[str, Figures]
    queues: dict[str, dict[str, Figures]]
    busy_lanes: list[BusyLane]
    #: Paused lane, queue or group -> since when, ms (inspection.paused).
    paused: dict[str, int] = field(default_factory=dict)
    flood_waits: list[TelegramPause] = field(default_factory=list)
    timers: WaitingTimers = field(default_factory=WaitingTimers)


def overview(
    now_us: int, records: Iterable[Record], names: Mapping[str, str], queues: Iterable[tuple[str, str]]
) -> Overview:
    """`names`: queue group -> bot name. `queues`: (group, queue) of each queue that is shown even when empty."""
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
