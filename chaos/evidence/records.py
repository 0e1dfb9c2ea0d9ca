"""The records of a chaos run as values: runs of the handler, calls that Telegram received, and faults.

This module does not judge them; chaos/check does. All times are seconds by the machine's clock, which Redis' TIME
uses too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from chaos.evidence.aof import FOREVER, Book, Holds, MessageId
from chaos.systems import agents, broadcast, timers
from chaos.systems.poison import is_poison
from chaos.systems.users import Conversation

Record = dict[str, Any]


@dataclass
class Call:
    """One ctx.call of a run, or one payment. `outcome` is "answered", "failed", or "died" with its process."""

    number: int | str
    began_s: float
    ended_s: float = FOREVER
    outcome: str = "died"


@dataclass
class HandlerRun:
    """One run of a handler. It ends with its last record, or when its process is killed. `update` is the first of the
    `group` that it runs, which usually has one.

    A run of a timer, of an occurrence of a schedule, of a recipient of a broadcast or of an agent has a `message` and
    no group; its `update` is the one that set the timer or began the agent, or 0. `answer`: the one that it continued
    with.
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
    calls: dict[int | str, Call] = field(default_factory=dict)
    message: str = ""
    answer: str = ""
    had: tuple[int, ...] = ()  #: the updates with which the run of an agent began
    took: tuple[int, ...] = ()  #: those that it took while it ran

    @property
    def id(self) -> MessageId:
        return int(self.message) if self.message.isdecimal() else self.message or self.update

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
    """A call that Telegram executed, or a payment. `size`: of the group that its run had. `text`: of one that answers
    no update.
    """

    at_s: float
    update: int
    number: int | str
    run: str | None
    fence: str | None
    size: int = 1
    text: str = ""


@dataclass(frozen=True)
class TimerRun:
    """A run of a timer. `id`: of its message; `from_s`: the time of the call that set it, and its seconds. `has_ended`:
    this run, or another one of its message.
    """

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
class BroadcastFindings:
    """A broadcast at the end: how many recipients it has, the number of each result, and why chats were missed."""

    total: int
    counts: Mapping[str, int]
    missed: Mapping[int, str]


@dataclass(frozen=True)
class Evidence:
    """Everything that the checker uses. None means that the system has no dead letters, book or sessions.

    `runs`: of updates; `others`: of timers, schedules and recipients of broadcasts. `sessions`: the number of updates
    that each chat's session has counted, by the chat's key. `parts`: the names of the main processes, by process id.
    """

    runs: Sequence[HandlerRun]
    effects: Sequence[Effect]
    faults: Sequence[InjectedFault]
    expected: Sequence[int]
    buried: frozenset[int] | None
    book: Book | None
    sessions: dict[str, int] | None
    parts: dict[int, str]
    others: Sequence[HandlerRun] = ()
    timers: Sequence[TimerRun] = ()
    timers_each: int = 0
    #: When the last occurrence of each schedule was due that had been fired when all updates were done.
    last_fired: Mapping[str, int] = field(default_factory=dict)
    calm_at_s: float = 0.0
    #: Those that have started, by id; the ids that the commands have printed; and the id of the main one.
    broadcasts: Mapping[str, BroadcastFindings] = field(default_factory=dict)
    promised: Sequence[str] = ()
    main_broadcast: str = ""
    #: Those of the agents, and the ids of the questions that were open at the end.
    conversations: Sequence[Conversation] = ()
    open_questions: Sequence[str] = ()
    #: The edits of the streams of agents, and the text of each stream at the end, with its order.
    edits: Sequence[Effect] = ()
    shown: Sequence[tuple[int, str]] = ()
    #: The numbers of those that the shop has committed.
    orders: Sequence[int] = ()
    #: How many messages of the main broadcast each chat has got.
    news: Mapping[int, int] = field(default_factory=dict)

    @property
    def terminated(self) -> frozenset[int]:
        """Updates that were terminated and are buried."""
        return frozenset(update for fault in self.faults for update in fault.updates) & (self.buried or frozenset())

    @property
    def all_runs(self) -> list[HandlerRun]:
        return [*self.runs, *self.others]

    def messages(self, kind: str) -> Counter[str]:
        """How many messages of each timer, occurrence or recipient Telegram has got, by the text after the kind."""
        begin = f"{kind} "
        texts = (effect.text for effect in self.effects)
        return Counter(text.removeprefix(begin) for text in texts if text.startswith(begin))

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
    group = () if "message" in record else tuple(record.get("updates", (record["id"],)))
    run = HandlerRun(record["run"], record["id"], tuple(record["keys"]), record["pid"], fence, at_s, group)
    run.message, run.had = record.get("message", ""), tuple(record.get("had", ()))
    if holds is None:
        run.valid_until_s = at_s + lease_s
    elif hold := holds.get((run.id, fence)):
        run.valid_until_s = hold.until_s
    return run


def _continued(run: HandlerRun, record: Record) -> None:
    match record["what"]:
        case "call" | "paid":
            run.calls[record["number"]] = Call(record["number"], record["at_s"])
        case "called":
            _called(run, record, "answered")
        case "failed":
            _called(run, record, "failed")
        case "took":
            run.took += (record["update"],)
        case "continued":
            run.answer = record["answer"]
        case outcome:
            run.end_s, run.outcome = record["at_s"], outcome


def _called(run: HandlerRun, record: Record, outcome: str) -> None:
    call = run.calls[record["number"]]
    call.ended_s, call.outcome = record["at_s"], outcome


def effects_in(calls: Iterable[Record]) -> list[Effect]:
    """The calls that the simulator received and executed, with the marks of chaos/systems/recording.py.

    Those of the main broadcast have none: a worker makes them, not the bot.
    """
    return [_effect(call) for call in calls if _is_message(call) and call["params"]["text"] != broadcast.TEXT]


def edits_in(calls: Iterable[Record]) -> list[Effect]:
    """The edits of the streams of agents. The mark that a `/stop` adds to a stream names no run, and is left out."""
    edits = [call for call in calls if call["ok"] and call["method"] == "editMessageText" and "run" in call["params"]]
    return [replace(_effect(call), number="edit") for call in edits]


def shown_in(calls: Iterable[Record]) -> list[tuple[int, str]]:
    """The texts of the streams of agents at the end, each with its order. `calls` are sent messages and edits."""
    shown: dict[tuple[int, int], tuple[int, str]] = {}
    for call in calls:
        text = call["params"]["text"]
        if call["ok"] and text.startswith(f"{agents.KIND} "):
            effect, message = _effect(call), call["result"]
            if effect.number == agents.CONFIRMATION:
                shown[message["chat"]["id"], message["message_id"]] = effect.update, text
    return [*shown.values()]


def payments_in(records: Iterable[Record], runs: Iterable[HandlerRun]) -> list[Effect]:
    fences = {run.name: run.fence for run in runs}
    return [
        Effect(each["at_s"], each["id"], each["number"], each["run"], fences[each["run"]], text=f"step {each['key']}")
        for each in records
        if each["what"] == "paid"
    ]


def timers_in(records: Iterable[Record]) -> list[TimerRun]:
    """The runs of timers in a history. The end of a run that was frozen may belong to a later one of its message."""
    begun, ended = dict[str, Record](), set[str]()
    for record in records:
        if record.get("kind") == timers.KIND:
            begun[record["run"]] = record
        elif record["what"] == "end" and record["run"] in begun:
            ended.add(begun[record["run"]]["message"])
    return [
        TimerRun(each["name"], each["message"], each["from_s"], each["due_s"], each["at_s"], each["message"] in ended)
        for each in begun.values()
    ]


def messages_of_broadcast(calls: Iterable[Record]) -> Counter[int]:
    """How many messages of the main broadcast each chat has got."""
    sent = (call["params"] for call in calls if _is_message(call))
    return Counter(int(params["chat_id"]) for params in sent if params["text"] == broadcast.TEXT)


def _is_message(call: Record) -> bool:
    return bool(call["ok"]) and call["method"] == "sendMessage"


def _effect(call: Record) -> Effect:
    params = call["params"]
    text, run, fence = params["text"], params.get("run"), params.get("fence")
    kind, is_other, name = text.partition(" ")
    if kind == agents.KIND:
        update, number = map(int, name.partition(" ")[0].split("."))
        return Effect(call["at"], update, number, run, fence, text=f"{kind} {update}.{number}")
    if is_other:
        update = int(name.partition(".")[0]) if kind == timers.KIND else 0
        return Effect(call["at"], update, 0, run, fence, text=text)
    update, number, size, *_ = map(int, f"{text}.1".split("."))
    return Effect(call["at"], update, number, run, fence, size)


def groups_in(runs: Iterable[HandlerRun]) -> dict[int, tuple[int, ...]]:
    """The group of each first update, as its last run had it."""
    return {run.update: run.group for run in runs}
