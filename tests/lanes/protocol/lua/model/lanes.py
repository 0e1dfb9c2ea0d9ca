"""A model of the lanes in plain Python, which test_state_machine.py compares with the scripts.

A message is queued in its lanes, leased, delayed, held or buried. Which queued messages are ready is not recorded: it
follows from their order. The model does not define the order of queues in a turn, nor the values of fences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from celery_lanes.protocol import (
    Begun,
    CancelTimer,
    Delete,
    Group,
    Limited,
    Move,
    MoveTimer,
    Noted,
    Paced,
    Rate,
    Set,
    SetMode,
    SetNote,
    SetTimer,
    Write,
)
from celery_lanes.protocol.keys import timer as timer_key
from tests.lanes.protocol.lua.model.journals import ModelJournal
from tests.lanes.protocol.lua.model.state import (
    KEPT,
    LEASE_MINUTES,
    MINUTE_MS,
    MOST,
    QUIET_MINUTES,
    TALK,
    MessageState,
    State,
    TimerState,
    group_field,
    number_of,
    state_with,
)

GRACE_MINUTES = LEASE_MINUTES // 3
HOLD_MINUTES = 10
SUSPECT_AFTER = 2


@dataclass
class ModelMessage:
    """A message. `seq` grows with every append and replay; `minutes` is the time left of its lease or delay."""

    id: str
    queue: str
    lanes: tuple[str, ...]
    seq: float
    state: str = "queued"
    fence: int | None = None
    holder: str | None = None
    minutes: int | None = None
    graced: bool = False
    died: int = 0
    failed: int = 0
    replayed: int | None = None
    parked: str | None = None
    alive: int | None = None
    errors: tuple[str, ...] = ()
    journal: ModelJournal = field(default_factory=ModelJournal)
    group: Group | None = None
    #: the group of its stored form: a marked message is not in it
    packed: Group | None = None
    #: of a group: its messages, and minutes until it is due; None: it does not wait for further ones
    names: tuple[str, ...] = ()
    due: int | None = None
    interrupted: int = 0
    is_open: bool = False
    is_shielded: bool = False
    #: the fence of the run that was stopped; 0: it never ran
    stopped: int | None = None
    #: of each message that its runs have taken: the place, the id, and the seq
    taken: tuple[tuple[int, str, float], ...] = ()

    #: it is over its rate: `due` is its turn
    has_turn: bool = False
    #: minutes until its turn, while it is not in its lanes
    turn: int | None = None
    is_marked: bool = False
    is_gathered: bool = False
    limits: tuple[Limited, ...] = ()
    #: the keys of limits in which it has a permit
    placed: set[str] = field(default_factory=set)
    is_gated: bool = False

    @property
    def lacks_a_permit(self) -> bool:
        return self.stopped is None and len(self.placed) < len(self.limits)

    @property
    def body(self) -> str:
        separator = ""
        if self.packed:
            separator = "\x1d" if self.packed.interrupts else "\x1e " if self.packed.steers else "\x1e"
        return "".join(f"{separator}body of {name}" for name in self.names)


@dataclass
class Model:
    items: dict[str, ModelMessage] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    #: number of a held message -> minutes left; None: until the lower held ones are released
    gaps: dict[int, int | None] = field(default_factory=dict)
    #: number right above a gap -> minutes for which a message may wait for the gap
    missing: dict[int, int] = field(default_factory=dict)
    #: the highest number that joined its lanes in order
    last: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    swept: int | None = None
    kept: dict[str, str] = field(default_factory=dict)
    last_seq: int = 0
    paused: set[str] = field(default_factory=set)
    #: ids whose fence must be newer after the verb; all others keep their fence
    refenced: set[str] = field(default_factory=set)
    #: owner and name -> a timer that has not fired
    timers: dict[str, TimerState] = field(default_factory=dict)
    #: owner and name of a schedule -> its record
    schedules: dict[str, str] = field(default_factory=dict)
    #: lane -> its note
    notes: dict[str, str] = field(default_factory=dict)
    #: lane -> its mode
    modes: dict[str, str] = field(default_factory=dict)
    #: key of a rate -> minutes until it is at its start again, and until when no message is marked
    rates: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: lane -> minutes until its next message may start
    paces: dict[str, int] = field(default_factory=dict)
    #: ids of held messages that have joined a group
    absorbed: set[str] = field(default_factory=set)

    def in_order(self) -> list[ModelMessage]:
        return sorted(self.items.values(), key=lambda item: item.seq)

    def ready(self, queues: Iterable[str] | None = None) -> list[ModelMessage]:
        """The messages that may be handed out."""
        self.admit()
        return [
            item for item in self._unpaced() if not item.lacks_a_permit and (queues is None or item.queue in queues)
        ]

    def _unpaced(self) -> list[ModelMessage]:
        """Those that are ready if their limits have permits."""
        return [item for item in self.first() if item.due is None and not self._pace_of(item)]

    def admit(self) -> None:
        """Give the permits of limits to the messages that may have them, the oldest first."""
        candidates = self._unpaced()
        for item in self.items.values():
            has_paused = item.stopped is None and item.placed & self.paused
            if item.state == "queued" and (item not in candidates or has_paused):
                item.placed.clear()
        full: set[str] = set()
        for item in candidates:
            for limit in item.limits if item.stopped is None else ():
                if limit in item.placed:
                    continue
                running = sum(limit in other.placed for other in self.items.values())
                if limit in full | self.paused or running >= limit.concurrency:
                    full.add(limit)
                    break
                item.placed.add(str(limit))

    def end_step(self) -> None:
        """The state after a verb."""
        self.delay_paced()
        self.admit()
        candidates = self._unpaced()
        for item in self.items.values():
            was_gated, item.is_gated = item.is_gated, item in candidates and item.lacks_a_permit
            self.counts["gated"] += item.is_gated and not was_gated

    def _pace_of(self, item: ModelMessage) -> int:
        """Minutes for which the rates of its lanes keep it waiting."""
        lanes = [lane for lane in item.lanes if isinstance(lane, Paced)] if item.stopped is None else []
        return max([0, *(self.paces.get(lane, 0) for lane in lanes)])

    def delay_paced(self) -> None:
        for item in self.first():
            if item.due is None and (minutes := self._pace_of(item)):
                item.state, item.minutes = "delayed", minutes
                item.placed.clear()

    def _note_start(self, item: ModelMessage) -> None:
        for lane in item.lanes:
            if isinstance(lane, Paced):
                self.paces[lane] = lane.interval_ms // MINUTE_MS

    def first(self) -> list[ModelMessage]:
        """The queued messages that are first in all their lanes, none of which is paused."""
        occupied: set[str] = set()
        found = []
        for item in self.in_order():
            if item.state in ("buried", "held"):
                continue
            if item.state == "queued" and not (occupied | self.paused) & set(item.lanes):
                found.append(item)
            occupied |= set(item.lanes)
        return found

    def in_state(self, state: str, holder: str | None = None) -> list[ModelMessage]:
        return [item for item in self.in_order() if item.state == state and holder in (None, item.holder)]

    def pending(self, queues: set[str]) -> int:
        return sum(item.state != "buried" for item in self.items.values() if item.queue in queues)

    # The verbs.

    def append(
        self,
        number: int,
        queue: str,
        lanes: Iterable[str],
        problem: str | None,
        group: Group | None = None,
        *,
        holds: bool = False,
        stops: bool = False,
        rate: Rate | None = None,
    ) -> bool:
        """True if it was added. With `holds`, it waits for lower missing numbers; else lower held ones are released."""
        if number in self.seen:
            self.counts["seen"] += 1
            return False
        if holds:
            self._note_arrival(number)
        elif self.gaps:
            self._release_held([each for each in self.gaps if each < number])
            self.missing = {above: minutes for above, minutes in self.missing.items() if above > number + 1}
        self.seen.add(number)
        over = self._over_rate(rate) if rate and not problem else None
        if over == "drop":
            self._advance()
            return False
        self.counts["appended"] += 1
        if stops and not problem:
            self._stop_first(lanes)
        keys = unique(lanes)
        in_mode = self._in_mode(keys[0], group) if keys and not problem else None
        item = self._made(number, queue, keys, in_mode, over)
        item.limits = limits_of(lanes)
        if problem:
            item.seq = self._next_seq()
            self.items[item.id] = item
            self.bury(item, problem)
        elif holds and item.lanes and self._must_wait(number):
            self.gaps[number] = HOLD_MINUTES
            item.state, item.seq, item.has_turn = "held", self._next_seq(), item.turn is not None
            self.items[item.id] = item
            self.counts["held"] += 1
        elif not self._queue(item):
            self.counts["appended"] -= 1
        if holds and item.lanes and not problem and item.state != "held":
            self._note(number)
        self._advance()
        return True

    def _in_mode(self, lane: str, group: Group | None) -> Group | None:
        mode = self.modes.get(lane)
        if group is None or mode is None:
            return group
        return None if mode == "queue" else group._replace(interrupts=mode == "interrupt", steers=mode == "steer")

    def _made(
        self, number: int, queue: str, lanes: Iterable[str], group: Group | None, over: Literal["mark"] | int | None
    ) -> ModelMessage:
        item = ModelMessage(f"1:{number}", queue, tuple(dict.fromkeys(lanes)), 0, names=(f"1:{number}",))
        if item.lanes:
            item.packed = group
            item.group = None if over == "mark" else group
        if over == "mark":
            item.is_marked = True
            self.refenced.add(item.id)
        else:
            item.turn = over
        return item

    def _over_rate(self, rate: Rate) -> Literal["drop", "mark"] | int | None:
        """None if it is within its rate; otherwise what becomes of it, or the minutes until its turn."""
        full, marked = self.rates.get(rate.key, (0, 0))
        most_full, each = rate.per_ms // MINUTE_MS, rate.per_ms // MINUTE_MS // rate.most
        if rate.over != "delay":
            full = min(full, most_full)
        turn = full + each - most_full
        over = None if turn <= 0 else turn if rate.over == "delay" else rate.over
        if over is None or rate.over == "delay":
            full += each
        elif over == "mark" and marked:
            over = "drop"
        elif over == "mark":
            marked = most_full
        self.rates[rate.key] = full, marked
        if over is not None:
            self.counts[{"drop": "rate_dropped", "mark": "rate_marked"}.get(str(over), "rate_delayed")] += 1
        return over

    def _queue(self, item: ModelMessage) -> bool:
        """Let it join its group, or else its lanes: True if these."""
        last = {lane: self._last(lane) for lane in item.lanes}
        first = next(iter(last.values()), None)
        if (
            item.group
            and item.fence is None
            and first
            and all(each is first for each in last.values())
            and self._join(first, item)
        ):
            return False
        for each in last.values():
            if each and not (each.has_turn and each.due is not None and each.due > 0):
                each.due, each.has_turn = None, each.has_turn and each.due is None
        item.state, item.seq = "queued", self._next_seq()
        self.items[item.id] = item
        quiet = QUIET_MINUTES if item.group and item.fence is None else 0
        item.due, item.has_turn, item.turn = max(quiet, item.turn or 0) or None, item.turn is not None, None
        return True

    def _last(self, lane: str) -> ModelMessage | None:
        queued = [item for item in self.in_order() if lane in item.lanes and item.state not in ("buried", "held")]
        return queued[-1] if queued else None

    def _join(self, first: ModelMessage, item: ModelMessage) -> bool:
        """True if `item` joined the group of `first`."""
        is_same = (first.group, first.queue, first.lanes) == (item.group, item.queue, item.lanes)
        if not is_same or not first.group or len(first.names) >= MOST or first.stopped is not None:
            return False
        is_ready = first in self._unpaced()
        if item.turn is not None and (first.fence is not None or not first.has_turn or is_ready):
            return False
        if first.state == "leased" and first.group.interrupts and not first.is_shielded:
            self._interrupt(first)
            first.due = QUIET_MINUTES
        if first.fence is not None and not first.is_open:
            return False
        is_ready = first in self._unpaced()
        first.names += item.names
        if not is_ready:
            quiet = QUIET_MINUTES if len(first.names) < MOST else 0
            first.due = max(quiet, (first.has_turn and first.due) or 0, item.turn or 0) or None
        self.counts["collected"] += 1
        return True

    def _interrupt(self, item: ModelMessage) -> None:
        assert item.fence is not None
        item.journal.leave(item.fence)
        self._take_back(item, "queued")
        item.is_open = True
        item.interrupted += 1
        self.counts["interrupted"] += 1

    def _stop_first(self, lanes: Iterable[str]) -> None:
        for lane in lanes:
            items = [each for each in self.in_order() if lane in each.lanes and each.state not in ("buried", "held")]
            first = items[0] if items else None
            is_waiting = first is not None and first.state == "queued" and first not in self.first()
            if first is None or first.stopped is not None or is_waiting:
                continue
            first.stopped = first.fence or 0
            self.counts["stopped"] += 1
            if not first.is_shielded:
                self._end_stopped(first)

    def _end_stopped(self, item: ModelMessage) -> None:
        item.interrupted += item.state == "leased"
        item.journal.leave(item.fence or 0)
        self._take_back(item, "queued")
        item.due = None
        if len(item.placed) < len(item.limits):
            item.placed.clear()

    def unshield(self, item: ModelMessage) -> bool:
        """True if a message that waited for it has ended the run."""
        item.is_shielded = False
        if item.stopped is not None:
            if item.stopped != item.fence:
                return False
            self._end_stopped(item)
            return True
        follower = self._follower(item)
        if follower is None or not item.group or not item.group.interrupts:
            return False
        if len(item.names + follower.names) > MOST:
            return False
        self._interrupt(item)
        item.names += follower.names
        is_last = all(self._last(lane) is follower for lane in item.lanes)
        item.due = follower.due if is_last and len(item.names) < MOST else None
        del self.items[follower.id]
        self.counts["collected"] += 1
        self.counts["settled"] += 1
        return True

    def _follower(self, item: ModelMessage) -> ModelMessage | None:
        """The message of its group that is directly behind it and was never leased."""
        queued = [each for each in self.in_order() if each.state not in ("buried", "held")]
        behind = [[each for each in queued if lane in each.lanes][1:] for lane in item.lanes]
        followers = {each[0].id if each else None for each in behind}
        found = self.items.get(next(iter(followers)) or "") if len(followers) == 1 else None
        if found is None or not item.group or found.fence is not None or found.has_turn:
            return None
        is_same = (item.group, item.queue, item.lanes) == (found.group, found.queue, found.lanes)
        return found if is_same else None

    def can_take(self, item: ModelMessage) -> ModelMessage | None:
        return None if self.paused & set(item.lanes) else self._follower(item)

    def take(self, item: ModelMessage, place: int) -> str | None:
        """The name of the message that the run takes."""
        follower = self.can_take(item)
        if follower is None:
            return None
        name, *others = follower.names
        item.names += (name,)
        item.taken += ((place, follower.id, follower.seq),)
        self.counts["steered"] += 1
        follower.names = tuple(others)
        if not others:
            del self.items[follower.id]
            self.counts["settled"] += 1
        return name

    def leave(self, item: ModelMessage, kept: int) -> None:
        left, item.taken = item.taken[kept:], item.taken[:kept]
        if not left:
            return
        names, item.names = item.names[-len(left) :], item.names[: -len(left)]
        if follower := self._follower(item):
            follower.names = names + follower.names
            return
        _, id_, seq = left[0]
        seq = seq if seq > item.seq else item.seq + 0.5
        self.items[id_] = ModelMessage(
            id_, item.queue, item.lanes, seq, group=item.group, packed=item.packed, names=names
        )
        self.counts["appended"] += 1

    def gather(self, item: ModelMessage, most: int) -> list[str]:
        """Make messages that follow it a part of it. Returns their ids."""
        gathered = []
        while len(gathered) < most and not item.taken:
            queued = [each for each in self.in_order() if each.state not in ("buried", "held")]
            behind = [[each for each in queued if lane in each.lanes][1:] for lane in item.lanes]
            followers = {each[0].id if each else None for each in behind}
            follower = self.items.get(next(iter(followers)) or "") if len(followers) == 1 else None
            is_same = follower and (item.queue, item.lanes) == (follower.queue, follower.lanes)
            is_same = (
                is_same
                and follower
                and (item.limits, rates_of(item.lanes))
                == (
                    follower.limits,
                    rates_of(follower.lanes),
                )
            )
            if follower is None or not is_same or follower.fence is not None or follower.has_turn:
                break
            item.names += follower.names
            item.packed, item.is_gathered = item.packed or TALK, True
            del self.items[follower.id]
            gathered.append(follower.id)
        self.counts["collected"] += len(gathered)
        self.counts["settled"] += len(gathered)
        return gathered

    def end_due(self) -> None:
        """Groups that are due no longer wait for further messages."""
        for item in self.items.values():
            if item.due is not None and item.due <= 0:
                item.due, item.has_turn = None, False

    def _note_arrival(self, number: int) -> None:
        """Close the gap that ends with this number, and open one for the missing numbers below it."""
        above = min((each for each in self.missing if each > number), default=None)
        minutes = 2 * HOLD_MINUTES if above is None else self.missing[above]
        if above == number + 1:
            del self.missing[above]
        if number > 0 and number - 1 not in self.seen:
            self.missing[number] = minutes

    def _has_gap(self, number: int, until: int) -> bool:
        below = max((each for each in self.missing if each <= number), default=None)
        return below is not None and self.missing[below] >= until

    def _must_wait(self, number: int) -> bool:
        return self._has_gap(number, HOLD_MINUTES) or any(each < number for each in self.gaps)

    def give_up_gaps(self) -> None:
        if self.gaps and any(minutes is not None and minutes <= 0 for minutes in self.gaps.values()):
            self.gaps = {
                number: None if minutes is not None and minutes <= 0 else minutes
                for number, minutes in self.gaps.items()
            }
            self._advance()

    def _advance(self) -> None:
        """Release held messages, lowest first, up to the first one that still waits for a gap."""
        for number in sorted(self.gaps):
            until = self.gaps[number]
            if until is not None and until > 0 and self._has_gap(number, until):
                return
            self._release_held([number])

    def _release_held(self, numbers: list[int]) -> None:
        for number in sorted(numbers):
            del self.gaps[number]
            item = self.items.pop(f"1:{number}")
            self._note(number)
            if not self._queue(item):
                self.counts["settled"] += 1
                self.absorbed.add(item.id)

    def _note(self, number: int) -> None:
        if self.last is not None and number < self.last:
            self.counts["late"] += 1
        else:
            self.last = number

    def settle(self, item: ModelMessage) -> None:
        self._note_start(item)
        del self.items[item.id]
        self.counts["settled"] += 1

    def commit(self, item: ModelMessage, writes: Iterable[Write]) -> None:
        for write in writes:
            if isinstance(write, SetTimer):
                minutes, lanes = write.in_ms // MINUTE_MS, tuple(write.lanes) or (*item.lanes, *item.limits)
                queue, body = write.queue or item.queue, f"body of {write.id}"
                self.schedule(TimerState(write.owner, write.name, write.id, minutes, lanes, queue, body))
                continue
            if isinstance(write, CancelTimer):
                self.cancel(write.owner, write.name)
                continue
            if isinstance(write, MoveTimer):
                self.assign(write)
                continue
            if isinstance(write, SetNote | SetMode):
                self.describe(write, item)
                continue
            name = write.key.removeprefix(KEPT)
            if isinstance(write, Set):
                self.kept[name] = write.value.decode()
            elif isinstance(write, Move) and name in self.kept:
                self.kept[write.to.removeprefix(KEPT)] = self.kept.pop(name)
            elif isinstance(write, Delete):
                self.kept.pop(name, None)
        self.settle(item)

    def describe(self, write: SetNote | SetMode, item: ModelMessage) -> None:
        if isinstance(write, SetMode):
            lane = write.lane or next(iter(item.lanes), "")
            self.modes.pop(lane, None)
            if lane and write.mode:
                self.modes[lane] = write.mode
            return
        self.notes.pop(write.lane, None)
        if write.text:
            self.notes[write.lane] = write.text

    def schedule(self, timer: TimerState) -> None:
        self.timers[timer.key] = timer
        self.counts["scheduled"] += 1

    def cancel(self, owner: str, name: str) -> bool:
        was_set = self.timers.pop(timer_key(owner, name), None) is not None
        self.counts["cancelled"] += was_set
        return was_set

    def assign(self, write: MoveTimer) -> None:
        timer = self.timers.get(timer_key(write.owner, write.name))
        if timer is None or timer.id != write.id:
            return
        del self.timers[timer.key]
        queue, lanes, body = write.queue, tuple(write.lanes), str(write.stored)
        assigned = replace(timer, owner=write.to, queue=queue, lanes=lanes, body=body)
        if assigned.key in self.timers:
            self.counts["cancelled"] += 1
        else:
            self.timers[assigned.key] = assigned

    def make_due(self, key: str) -> None:
        self.timers[key] = replace(self.timers[key], minutes=-1)

    def fire_due(self, in_order: Iterable[str]) -> list[str]:
        """Timers that are due join their lanes. Returns the ids of their messages."""
        due = [timer for key in in_order if (timer := self.timers[key]).minutes <= 0]
        for timer in due:
            del self.timers[timer.key]
            limits = limits_of(timer.lanes)
            self._queue(ModelMessage(timer.id, timer.queue, unique(timer.lanes), 0, names=(timer.id,), limits=limits))
        self.counts["appended"] += len(due)
        self.counts["fired"] += len(due)
        return [timer.id for timer in due]

    def advance(self, owner: str, name: str, record: str, ids: Iterable[str], lanes: Iterable[str]) -> None:
        """The messages of a schedule's occurrences join the queue `q`. Without a record, the schedule is removed."""
        self.schedules.pop(timer_key(owner, name), None)
        if record:
            self.schedules[timer_key(owner, name)] = record
        for message_id in ids:
            limits = limits_of(lanes)
            self._queue(ModelMessage(message_id, "q", unique(lanes), 0, names=(message_id,), limits=limits))
            self.counts["appended"] += 1

    def adopt(self, ids: Sequence[str], lanes: Iterable[str], minutes: int) -> None:
        """New messages join the queue `q`. The first one has an eta."""
        if minutes > 0:
            timer = TimerState(f"task {ids[0]}", "eta", ids[0], minutes, tuple(lanes), "q", f"body of {ids[0]}")
            self.schedule(timer)
        for message_id in ids[int(minutes > 0) :]:
            limits = limits_of(lanes)
            self._queue(ModelMessage(message_id, "q", unique(lanes), 0, names=(message_id,), limits=limits))
            self.counts["appended"] += 1

    def move_out(self, items: Iterable[ModelMessage]) -> list[ModelMessage]:
        """Returns which of these messages left their lanes."""
        moved = []
        for item in items:
            before = [each for each in self.in_order() if each.seq < item.seq and each.state not in ("buried", "held")]
            is_first = not {lane for each in before for lane in each.lanes} & set(item.lanes)
            is_single = not item.group and len(item.names) == 1 and not item.has_turn and item.stopped is None
            if is_first and is_single and item.state in ("queued", "delayed") and not item.journal.fields():
                del self.items[item.id]
                self.counts["settled"] += 1
                moved.append(item)
        return moved

    def hand_out(self, item: ModelMessage, holder: str) -> None:
        item.state, item.holder, item.minutes, item.graced = "leased", holder, LEASE_MINUTES, False
        item.is_open = False
        self.refenced.add(item.id)
        self.counts["handed_out"] += 1

    def renew(self, item: ModelMessage) -> None:
        item.minutes, item.graced = LEASE_MINUTES, False

    def begin(self, item: ModelMessage, position: str, what: str) -> Begun:
        assert item.fence
        before = item.journal.times_uncertain
        begun = item.journal.begin(item.fence, position, what)
        self.counts["uncertain"] += item.journal.times_uncertain - before
        self.counts["answered"] += begun.noted in (Noted.DONE, Noted.REFUSED)
        self.renew(item)
        return begun

    def release(self, item: ModelMessage, *, died: bool = False, started: bool = True) -> None:
        self._take_back(item, "queued", started=started)
        item.died += died
        item.alive = 0 if died else item.alive
        self.counts["released"] += 1

    def retry(self, item: ModelMessage, minutes: int, problem: str) -> None:
        self._take_back(item, "delayed")
        item.minutes = minutes
        item.failed += 1
        item.parked = item.alive = None
        item.errors += (problem,)
        self.counts["retried"] += 1

    def park(self, item: ModelMessage, minutes: int) -> None:
        self._take_back(item, "delayed")
        item.minutes, item.parked, item.alive = minutes, "why", None
        self.counts["parked"] += 1

    def bury(self, item: ModelMessage, problem: str) -> None:
        self._take_back(item, "buried")
        item.errors += (problem,)
        self.counts["buried"] += 1

    def replay(self, item: ModelMessage) -> None:
        self._queue(item)
        item.replayed = 0
        item.died, item.failed, item.errors, item.parked = 0, 0, (), None
        item.alive = item.stopped = None
        self.counts["replayed"] += 1

    def drop(self, item: ModelMessage) -> None:
        del self.items[item.id]
        self.counts["dropped"] += 1

    def purge(self, queue: str) -> int:
        """Bury the ready messages, and those that become ready meanwhile; returns the number of buried messages."""
        purged = 0
        while found := self.ready([queue]):
            self.bury(found[0], "Purged")
            purged += 1
        return purged

    def sweep(self) -> tuple[int, int]:
        """The number of expired leases and of due retries."""
        if self.swept is not None and self.swept > GRACE_MINUTES:
            for item in self.in_state("leased"):
                if item.minutes is not None and item.minutes <= GRACE_MINUTES and not item.graced:
                    item.minutes, item.graced = GRACE_MINUTES, True
        self.swept = 0
        expired = self._take_back_overdue("leased")
        for item in expired:
            item.died += 1
        self.counts["expired"] += len(expired)
        due = self._take_back_overdue("delayed")
        self.give_up_gaps()
        self.end_due()
        self.paces = {lane: minutes for lane, minutes in self.paces.items() if minutes > 0}
        return len(expired), len(due)

    def _take_back_overdue(self, state: str) -> list[ModelMessage]:
        overdue = [item for item in self.in_state(state) if item.minutes is not None and item.minutes <= 0]
        for item in overdue:
            if item.state == "leased":
                item.alive = LEASE_MINUTES - (item.minutes or 0)
            self._take_back(item, "queued")
        return overdue

    def _take_back(self, item: ModelMessage, state: str, *, started: bool = True) -> None:
        if item.state == "leased" and started:
            self._note_start(item)
        item.state, item.holder, item.minutes, item.graced = state, None, None, False
        item.is_open = item.is_shielded = item.has_turn = False
        if state != "queued":
            item.placed.clear()
        self.refenced.add(item.id)

    def _next_seq(self) -> int:
        self.last_seq += 1
        return self.last_seq

    # The expected state in Redis.

    def expected(self, bells: Iterable[str]) -> State:
        """All keys; `ready` and `dead` in lane order."""
        first = {item.id: "ready" if item.due is None else "collecting" for item in self.first()}
        first |= {item.id: "gated" for item in self._unpaced() if item.lacks_a_permit}
        messages = []
        for item in self.in_order():
            state = item.state if item.state != "queued" else first.get(item.id, "waiting")
            messages.append(
                MessageState(
                    item.id,
                    state,
                    item.lanes,
                    queue=item.queue,
                    fence=item.fence,
                    holder=item.holder,
                    minutes=self.gaps[number_of(item.id)] if state == "held" else item.minutes,
                    held=item.id if state == "held" else None,
                    died=item.died,
                    failed=item.failed,
                    replayed=item.replayed,
                    parked=item.parked,
                    alive=item.alive,
                    errors=item.errors,
                    group=group_field(item.group) if item.group else None,
                    size=len(item.names),
                    due=item.due,
                    interrupted=item.interrupted,
                    is_open=item.is_open,
                    is_shielded=item.is_shielded,
                    is_stopped=item.stopped is not None,
                    taken=tuple((place, id_) for place, id_, _ in item.taken),
                    has_turn=item.has_turn,
                    is_marked=item.is_marked,
                    is_gathered=item.is_gathered,
                    body=item.body if item.packed else None,
                    rates=rates_of(item.lanes),
                    limits=tuple(f"{limit.concurrency} {limit}" for limit in item.limits),
                )
            )
        seen = {"1:0": self.seen} if self.seen else {}
        state = state_with(
            *messages,
            bells=bells,
            counts=self.counts,
            seen=seen,
            journals={item.id: fields for item in self.in_order() if (fields := item.journal.fields())},
            swept=self.swept,
            kept=self.kept,
            paused={f"lane:{lane}" for lane in self.paused},
            timers=self.timers.values(),
            last={} if self.last is None else {"1": self.last},
        )
        state.held = {f"1:{number}": minutes for number, minutes in self.gaps.items() if minutes is not None}
        state.missing = {"1": self.missing} if self.missing else {}
        state.schedules = dict(self.schedules)
        state.notes = dict(self.notes)
        state.modes = dict(self.modes)
        state.rates = dict(self.rates)
        state.paces = dict(self.paces)
        state.permits, state.gates = {}, {}
        for item in self.in_order():
            for limit in item.limits:
                if limit in item.placed:
                    state.permits.setdefault(str(limit), []).append(item.id)
                elif item.is_gated:
                    state.gates.setdefault(str(limit), []).append(item.id)
                    break
        return state


def unique(lanes: Iterable[str]) -> tuple[str, ...]:
    """Each lane once, with its rate if it is there with one."""
    lanes = [lane for lane in lanes if not isinstance(lane, Limited)]
    paced = {lane: lane for lane in lanes if isinstance(lane, Paced)}
    return tuple(paced.get(lane, lane) for lane in dict.fromkeys(lanes))


def limits_of(lanes: Iterable[str]) -> tuple[Limited, ...]:
    """As they are stored: each once, sorted."""
    limits = {str(lane): lane for lane in lanes if isinstance(lane, Limited)}
    return tuple(limits[key] for key in sorted(limits))


def rates_of(lanes: Iterable[str]) -> tuple[str, ...]:
    rates = tuple(lane.rate if isinstance(lane, Paced) else "" for lane in lanes)
    return rates if any(rates) else ()
