"""The records of a chaos run as values: runs of the handler, calls that Telegram received, and faults.

This module does not judge them; chaos/check does. All times are seconds by the machine's clock, which Redis' TIME
uses too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos.evidence.aof import FOREVER, Book, Holds
from chaos.systems import broadcast
from chaos.systems.poison import is_poison
from chaos.systems.timers import TEXT

Record = dict[str, Any]

#: Begin the texts of messages that do not answer an update.
OTHERS = (TEXT, broadcast.TEXT)


@dataclass
class Call:
    """One ctx.call of a run. `outcome` is "answered", "failed", or "died" with its process."""

    number: int
    began_s: float
    ended_s: float = FOREVER
    outcome: str = "died"


@dataclass
class HandlerRun:
    """One run of a handler. It ends with its last record, or when its process is killed. `update` is the first of the
    `group` that it runs, which usually has one.
    """

    name: str
    update: int
    keys: tuple[str, ...]
    pid: int
    fence: str | None
    start_s: float
    group: tuple[int, ...]
    end_s: float = FOREVER
    outcome: str = "died"  # or "end", "raise", "die" (killed itself)
    valid_until_s: float = FOREVER  # from then on another run may have the lease
    calls: dict[int, Call] = field(default_factory=dict)

    @property
    def is_late(self) -> bool:
        """Frozen between the lease check and its first line."""
        return self.start_s > self.valid_until_s

    @property
    def is_poison(self) -> bool:
        return any(map(is_poison, self.group))

    @property
    def busy_until_s(self) -> float:
        return min(self.end_s, self.valid_until_s)


@dataclass(frozen=True)
class Effect:
    """A call that Telegram executed. `size`: of the group that its run had."""

    at_s: float
    update: int
    number: int
    run: str | None
    fence: str | None
    size: int = 1


@dataclass(frozen=True)
class TimerRun:
    """A run of a timer. `id`: of its message; `from_s`: the time of the call that set it, and its seconds."""

    name: str
    id: str
    from_s: float
    due_s: float
    at_s: float
    has_ended: bool


@dataclass(frozen=True)
class InjectedFault:
    """`pids` are the killed processes, `for_s` is the duration, `updates` are the updates to terminate."""

    at_s: float
    what: str
    target: str
    for_s: float = 0.0
    pids: tuple[int, ...] = ()
    updates: tuple[int, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """Everything that the checker uses. None means that the system has no dead letters, book or sessions.

    `sessions`: the number of updates that each chat's session has counted, by the chat's key. `parts`: the names of
    the main processes, by process id.
    """

    runs: Sequence[HandlerRun]
    effects: Sequence[Effect]
    faults: Sequence[InjectedFault]
    expected: Sequence[int]
    buried: frozenset[int] | None
    book: Book | None
    sessions: dict[str, int] | None
    parts: dict[int, str]
    timers: Sequence[TimerRun] = ()
    #: How many messages of each timer Telegram has got, by its name.
    timer_messages: Mapping[str, int] = field(default_factory=dict)
    timers_each: int = 0
    #: Of a broadcast: the number of its recipients, of each result, and the reason of each chat that was not reached;
    #: and how many messages each chat has got.
    recipients: int = 0
    results: Mapping[str, int] = field(default_factory=dict)
    missed: Mapping[int, str] = field(default_factory=dict)
    broadcast_messages: Mapping[int, int] = field(default_factory=dict)

    @property
    def terminated(self) -> frozenset[int]:
        """Updates that were terminated and are buried."""
        return frozenset(update for fault in self.faults for update in fault.updates) & (self.buried or frozenset())

    @property
    def holds(self) -> Holds | None:
        return None if self.book is None else self.book.holds


def runs_in(
    records: Iterable[Record], faults: Sequence[InjectedFault], holds: Holds | None, lease_s: float
) -> list[HandlerRun]:
    """The runs in a history, in the order of their first lines."""
    runs: dict[str, HandlerRun] = {}
    died: dict[int, list[float]] = defaultdict(list)
    for fault in faults:
        for pid in fault.pids:
            died[pid].append(fault.at_s)
    for record in records:
        if record["what"] == "start":
            runs[record["run"]] = _started(record, holds, lease_s)
        else:
            _continued(runs[record["run"]], record)
            if record["what"] == "die":
                died[runs[record["run"]].pid].append(record["at_s"])
    for run in runs.values():
        if run.end_s == FOREVER:  # process ids are reused, so take the first death after the start
            run.end_s = min((at_s for at_s in died[run.pid] if at_s >= run.start_s), default=FOREVER)
    return list(runs.values())


def _started(record: Record, holds: Holds | None, lease_s: float) -> HandlerRun:
    fence, at_s = record["fence"], record["at_s"]
    group = tuple(record.get("updates", (record["id"],)))
    run = HandlerRun(record["run"], record["id"], tuple(record["keys"]), record["pid"], fence, at_s, group)
    if holds is None:
        run.valid_until_s = at_s + lease_s
    elif hold := holds.get((run.update, fence)):
        run.valid_until_s = hold.until_s
    return run


def _continued(run: HandlerRun, record: Record) -> None:
    match record["what"]:
        case "call":
            run.calls[record["number"]] = Call(record["number"], record["at_s"])
        case "called":
            _called(run, record, "answered")
        case "failed":
            _called(run, record, "failed")
        case outcome:
            run.end_s, run.outcome = record["at_s"], outcome


def _called(run: HandlerRun, record: Record, outcome: str) -> None:
    call = run.calls[record["number"]]
    call.ended_s, call.outcome = record["at_s"], outcome


def effects_in(calls: Iterable[Record]) -> list[Effect]:
    """The calls that the simulator received and executed, with the marks of chaos/systems/bot.py."""
    return [_effect(call) for call in calls if _is_message(call) and not call["params"]["text"].startswith(OTHERS)]


def timers_in(records: Iterable[Record]) -> list[TimerRun]:
    """The runs in a history of timers. The end of a run that was frozen may belong to a later one of its message."""
    begun, ended = [], set()
    for record in records:
        if record["what"] == "end":
            ended.add(record["id"])
        else:
            begun.append(record)
    return [
        TimerRun(each["name"], each["id"], each["from_s"], each["due_s"], each["at_s"], each["id"] in ended)
        for each in begun
    ]


def messages_of_timers(calls: Iterable[Record]) -> Counter[str]:
    """How many messages of each timer Telegram has got."""
    texts = (call["params"]["text"] for call in calls if _is_message(call))
    return Counter(text.removeprefix(TEXT) for text in texts if text.startswith(TEXT))


def messages_of_broadcast(calls: Iterable[Record]) -> Counter[int]:
    """How many messages of the broadcast each chat has got."""
    sent = (call["params"] for call in calls if _is_message(call))
    return Counter(int(params["chat_id"]) for params in sent if params["text"] == broadcast.TEXT)


def _is_message(call: Record) -> bool:
    return bool(call["ok"]) and call["method"] == "sendMessage"


def _effect(call: Record) -> Effect:
    params = call["params"]
    update, number, size, *_ = map(int, f"{params['text']}.1".split("."))
    return Effect(call["at"], update, number, params.get("run"), params.get("fence"), size)


def groups_in(runs: Iterable[HandlerRun]) -> dict[int, tuple[int, ...]]:
    """The group of each first update, as its last run had it."""
    return {run.update: run.group for run in runs}
