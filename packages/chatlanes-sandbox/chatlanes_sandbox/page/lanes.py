"""The lanes as the page shows them, read from Redis at an interval.

Asks Redis only while a page is open or the state of an update is unknown. A snapshot is not atomic.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from celery_lanes.monitoring import inspection
from celery_lanes.monitoring.inspection import Record
from celery_lanes.protocol import Store
from celery_lanes.protocol.keys import group_of
from chatlanes.broadcasts import BroadcastProgress, Broadcasts
from chatlanes.settings import Settings
from chatlanes.updates.connection import connect_to

#: The pause between two reads, and its least multiple of the time that a read takes.
LOOK_EVERY_S = 0.25
REST_FACTOR = 10
TIMEOUT_S = 5.0
#: Waiting messages that are read one by one, the oldest first.
MOST_LOOKED_AT = 500
#: Buried messages that are read, the last ones.
MOST_BURIED = 200
#: Groups whose updates are remembered.
MOST_GROUPS = 2_000
#: How long a broadcast is shown after its end.
ENDED_SHOWN_MS = 60_000
#: The period of the rate.
RATE_OVER_S = 3.0


def number_of_update(message_id: str) -> int | None:
    """None for a message that is not an update, such as that of a timer or of a broadcast."""
    _, _, number = message_id.partition(":")
    return int(number) if number.isdecimal() else None


@dataclass(frozen=True)
class LaneSnapshot:
    """The result of one read. `records` has leased messages, the oldest waiting ones, those of `asked` that exist and
    the last buried ones; `reasons` has the problems of those of `asked` that were buried; `groups` has the updates of
    each run with more than one. Without arguments: nothing was read yet.
    """

    at_s: float = 0.0
    records: Mapping[str, Record] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()
    reasons: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    pending: int = 0
    delayed: int = 0
    buried: int = 0
    settled: int = 0
    appended: int = 0
    rate_s: float = 0.0
    #: When the lease of each message that a worker has ends, Unix seconds.
    lease_ends_s: Mapping[str, float] = field(default_factory=dict)
    broadcasts: Sequence[BroadcastProgress] = ()
    #: Broadcast -> results/s.
    broadcast_rates_s: Mapping[str, float] = field(default_factory=dict)
    groups: Sequence[list[int]] = ()

    @property
    def leased(self) -> list[Record]:
        return [record for record in self.records.values() if record.state == "leased"]


class Growth:
    """How fast a number has grown."""

    def __init__(self) -> None:
        self._known: deque[tuple[float, int]] = deque()

    def of(self, now: int) -> float:
        """Per second, over the last RATE_OVER_S. `now` is the number at this moment."""
        now_s = time.monotonic()
        self._known.append((now_s, now))
        while now_s - self._known[0][0] > RATE_OVER_S and len(self._known) > 2:
            self._known.popleft()
        since_s, before = self._known[0]
        return round((now - before) / (now_s - since_s), 1) if now_s > since_s else 0.0


@dataclass
class LaneWatch:
    """`asks` returns the ids of messages to look up, or None if no read is needed; `saw` gets each snapshot."""

    settings: Settings
    asks: Callable[[], frozenset[str] | None]
    saw: Callable[[LaneSnapshot], None]
    _settled: Growth = field(default_factory=Growth, init=False)
    _done: dict[str, Growth] = field(default_factory=dict, init=False)
    _groups: OrderedDict[str, list[int]] = field(default_factory=OrderedDict, init=False)

    def start(self) -> None:
        """Read in a thread of its own; `asks` and `saw` are called on the event loop of the caller."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, args=(loop,), daemon=True, name="watch").start()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        async def asked() -> frozenset[str] | None:
            return self.asks()

        client = connect_to(self.settings, TIMEOUT_S)
        while True:
            wanted = asyncio.run_coroutine_threadsafe(asked(), loop).result()
            took_s = 0.0
            if wanted is not None:
                began_s = time.monotonic()
                try:
                    loop.call_soon_threadsafe(self.saw, self.snapshot(client, wanted))
                except RedisError:
                    took_s = LOOK_EVERY_S
                took_s += time.monotonic() - began_s
            time.sleep(max(LOOK_EVERY_S, took_s * REST_FACTOR))

    def snapshot(self, client: Redis, asked: frozenset[str]) -> LaneSnapshot:
        """Raises RedisError."""
        group = self.settings.queue_group
        buried = list(inspection.dead(client))
        waiting = inspection.pending(client, group, MOST_LOOKED_AT)
        leased = inspection.lease_ends_ms(client, MOST_LOOKED_AT)
        ids = dict.fromkeys([*waiting, *leased, *buried[-MOST_BURIED:], *asked])
        records = {record.id: record for record in inspection.records(client, ids)}
        counts = inspection.counts(client)
        settled = counts.get("settled", 0)
        broadcasts = self._broadcasts(client)
        return LaneSnapshot(
            at_s=time.time(),
            records=records,
            asked=asked,
            reasons={id_: (inspection.problems(client, id_) or [{}])[-1] for id_ in asked & set(buried)},
            pending=Store(client).pending(group, group_of(self.settings.broadcast_queue)),
            delayed=inspection.delayed(client),
            buried=len(buried),
            settled=settled,
            appended=counts.get("appended", 0),
            rate_s=self._settled.of(settled),
            lease_ends_s={message_id: at_ms / 1000 for message_id, at_ms in leased.items()},
            broadcasts=broadcasts,
            broadcast_rates_s={each.id: self._done.setdefault(each.id, Growth()).of(each.done) for each in broadcasts},
            groups=[found for record in records.values() if len(found := self._group(client, record)) > 1],
        )

    def _group(self, client: Redis, record: Record) -> list[int]:
        """The ids of the updates of this run, if it is the bot's and has several; else none, even if it has ended since
        its record was read. Read again only when there are more.
        """
        if record.size == 1 or not record.id.startswith(f"{self.settings.bot_id}:"):
            return []
        known = self._groups.get(record.id, [])
        if len(known) != record.size:
            found = inspection.contents(client, record.id)
            known = [each["update_id"] for each in found if isinstance(each, dict) and "update_id" in each]
            self._groups[record.id] = known
            while len(self._groups) > MOST_GROUPS:
                self._groups.popitem(last=False)
        return known

    def _broadcasts(self, client: Redis) -> list[BroadcastProgress]:
        """Those that run or are paused, and the last one that has ended for as long as people look at its end."""
        now_ms = time.time() * 1000
        found = Broadcasts(client, self.settings.bot_id).all()
        return [each for each in found if not each.ended_ms or now_ms - each.ended_ms < ENDED_SHOWN_MS]


# ── the form that the page gets ──

#: Chats shown in addition to the page's own, those with the most waiting.
MOST_OTHERS = 10


@dataclass
class LaneRow:
    """One lane."""

    key: str
    running: Record | None = None
    waiting: int = 0
    delayed: bool = False
    buried: int = 0

    def add(self, record: Record) -> None:
        match record.state:
            case "leased":
                self.running = record
            case "buried":
                self.buried += 1
            case "delayed":
                self.delayed = True
            case _:
                self.waiting += 1


@dataclass(frozen=True)
class KnownWorkers:
    """As the supervisor reports them. `names` are those of all that there were, by their processes."""

    told: Sequence[Mapping[str, Any]] = field(default_factory=list)
    names: Mapping[int, str] = field(default_factory=dict)
    #: Message id -> when its handler started, of those that run.
    runs_since_s: Mapping[str, float] = field(default_factory=dict)

    def is_running(self, record: Record) -> bool:
        """A worker is also handed messages that it starts later."""
        return record.id in self.runs_since_s and not self.holder_of(record)["gone"]

    def holder_of(self, record: Record) -> dict[str, Any]:
        """The worker that has it. One that is gone has it until the lease ends."""
        pid = _pid_of(record)
        is_there = any(worker["pid"] == pid and worker["alive"] for worker in self.told)
        return {"worker": self.names.get(pid, f"pid {pid}"), "gone": bool(self.told) and not is_there}

    def shown(self, snapshot: LaneSnapshot) -> list[dict[str, Any]]:
        busy = self.busy(snapshot)
        running = self._counted(record for record in snapshot.leased if self.is_running(record))
        return [
            {
                **worker,
                "running": running.get(worker["name"], 0),
                "handed_out": busy.get(worker["name"], 0) - running.get(worker["name"], 0),
            }
            for worker in self.told
        ]

    def busy(self, snapshot: LaneSnapshot) -> dict[str, int]:
        """Worker -> how many messages it has."""
        return self._counted(record for record in snapshot.leased if not self.holder_of(record)["gone"])

    def _counted(self, records: Iterable[Record]) -> dict[str, int]:
        return Counter(self.holder_of(record)["worker"] for record in records)


def lanes_shown(
    snapshot: LaneSnapshot, bot_id: int, titles: Mapping[int, str], workers: KnownWorkers
) -> dict[str, Any]:
    """`titles` are those of the page's own chats."""
    leased = snapshot.leased
    running = sum(map(workers.is_running, leased))
    return {
        "counts": {
            "waiting": max(0, snapshot.pending - len(leased) - snapshot.delayed),
            "handed_out": len(leased) - running,
            "running": running,
            "delayed": snapshot.delayed,
            "buried": snapshot.buried,
            "settled": snapshot.settled,
            "appended": snapshot.appended,
        },
        "rate_s": snapshot.rate_s,
        "rows": _rows(snapshot, bot_id, titles, workers),
        "workers": workers.shown(snapshot),
        "broadcasts": [broadcast_shown(each, snapshot) for each in snapshot.broadcasts],
    }


def broadcast_shown(progress: BroadcastProgress, snapshot: LaneSnapshot) -> dict[str, Any]:
    return {
        "id": progress.id,
        "state": progress.state,
        "why": progress.why,
        "total": progress.total,
        "done": progress.done,
        "results": {reason: count for reason, count in progress.counts.items() if count},
        "rate_s": snapshot.broadcast_rates_s.get(progress.id, 0.0),
    }


def _rows(
    snapshot: LaneSnapshot, bot_id: int, titles: Mapping[int, str], workers: KnownWorkers
) -> list[dict[str, Any]]:
    own = [f"{bot_id}/chat:{chat_id}" for chat_id in titles]
    rows = {key: LaneRow(key) for key in own}
    for record in snapshot.records.values():
        for key in record.lanes:
            rows.setdefault(key, LaneRow(key)).add(record)
    others = [row for key, row in rows.items() if key not in own]
    others.sort(key=lambda row: (row.waiting, row.running is not None), reverse=True)
    shown = [*(rows[key] for key in own), *others[:MOST_OTHERS]]
    return [_shown(row, titles, workers, snapshot.lease_ends_s) for row in shown]


def _shown(
    row: LaneRow, titles: Mapping[int, str], workers: KnownWorkers, lease_ends_s: Mapping[str, float]
) -> dict[str, Any]:
    key = row.key.partition("/")[2]
    kind, _, number = key.partition(":")
    chat_id = int(number) if kind == "chat" and number.lstrip("-").isdigit() else None
    title = titles.get(chat_id or 0) or key.replace(":", " ", 1)
    running = row.running and {
        "update_id": number_of_update(row.running.id),
        **workers.holder_of(row.running),
        "started": row.running.id in workers.runs_since_s,
        "since_s": workers.runs_since_s.get(row.running.id, row.running.moved_us / 1e6),
        # Of a live worker it changes with every renewal.
        "lease_ends_s": lease_ends_s.get(row.running.id) if workers.holder_of(row.running)["gone"] else None,
        "attempt": row.running.attempt,
    }
    state = {"running": running, "waiting": row.waiting, "delayed": row.delayed, "buried": row.buried}
    return {"chat_id": chat_id, "title": title, **state}


def _pid_of(record: Record) -> int:
    """`host:pid:…`; 0: unknown."""
    parts = record.holder.split(":")
    return int(parts[1]) if len(parts) > 1 and parts[1].isdecimal() else 0
