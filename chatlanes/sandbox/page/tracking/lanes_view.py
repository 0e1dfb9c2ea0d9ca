"""The lanes in the form that the page gets: counts, the updates that run and wait in each chat, workers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chatlanes.broadcasts import BroadcastProgress
from chatlanes.lanes.monitoring.inspection import Record
from chatlanes.sandbox.page.tracking.lane_watch import LaneSnapshot, number_of_update

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

    def shown(self, snapshot: LaneSnapshot | None) -> list[dict[str, Any]]:
        busy = self.busy(snapshot)
        running = self._counted(record for record in _leased(snapshot) if self.is_running(record))
        return [
            {
                **worker,
                "running": running.get(worker["name"], 0),
                "handed_out": busy.get(worker["name"], 0) - running.get(worker["name"], 0),
            }
            for worker in self.told
        ]

    def busy(self, snapshot: LaneSnapshot | None) -> dict[str, int]:
        """Worker -> how many messages it has."""
        return self._counted(record for record in _leased(snapshot) if not self.holder_of(record)["gone"])

    def _counted(self, records: Iterable[Record]) -> dict[str, int]:
        return Counter(self.holder_of(record)["worker"] for record in records)


def lanes_shown(
    snapshot: LaneSnapshot | None, bot_id: int, titles: Mapping[int, str], workers: KnownWorkers
) -> dict[str, Any]:
    """`titles` are those of the page's own chats. Without a snapshot all counts are zero."""
    records = list(snapshot.records.values()) if snapshot else []
    leased = _leased(snapshot)
    running = sum(map(workers.is_running, leased))
    counts = dict.fromkeys(("waiting", "handed_out", "running", "delayed", "buried", "settled", "appended"), 0)
    if snapshot:
        counts = {
            "waiting": max(0, snapshot.pending - len(leased) - snapshot.delayed),
            "handed_out": len(leased) - running,
            "running": running,
            "delayed": snapshot.delayed,
            "buried": snapshot.buried,
            "settled": snapshot.settled,
            "appended": snapshot.appended,
        }
    return {
        "counts": counts,
        "rate_s": snapshot.rate_s if snapshot else 0.0,
        "rows": _rows(records, bot_id, titles, workers, snapshot.lease_ends_s if snapshot else {}),
        "workers": workers.shown(snapshot),
        "broadcasts": [broadcast_shown(each, snapshot) for each in snapshot.broadcasts] if snapshot else [],
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


def _leased(snapshot: LaneSnapshot | None) -> list[Record]:
    return [record for record in snapshot.records.values() if record.state == "leased"] if snapshot else []


def _rows(
    records: Sequence[Record],
    bot_id: int,
    titles: Mapping[int, str],
    workers: KnownWorkers,
    lease_ends_s: Mapping[str, float],
) -> list[dict[str, Any]]:
    own = [f"{bot_id}/chat:{chat_id}" for chat_id in titles]
    rows = {key: LaneRow(key) for key in own}
    for record in records:
        for key in record.lanes:
            rows.setdefault(key, LaneRow(key)).add(record)
    others = [row for key, row in rows.items() if key not in own]
    others.sort(key=lambda row: (row.waiting, row.running is not None), reverse=True)
    shown = [*(rows[key] for key in own), *others[:MOST_OTHERS]]
    return [_shown(row, titles, workers, lease_ends_s) for row in shown]


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
