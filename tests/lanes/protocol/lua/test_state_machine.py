"""Random sequences of verbs, including late verbs and lost keys, compared with a model in plain Python.

After every step, each key agrees with the model, and messages of a lane are handed out in order and one at a time. In
the end, all messages are settled once and no key is left. A failure prints its seed: STATE_MACHINE_SEED repeats it,
STATE_MACHINE_SHRINK minimizes it, STATE_MACHINE_EXAMPLES sets the number of sequences.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from redis import Redis

from celery_lanes.embedded_server import Server
from celery_lanes.protocol import (
    Adopted,
    CancelTimer,
    Delete,
    Element,
    Fetched,
    Group,
    Kind,
    Leased,
    Leaving,
    Limited,
    Move,
    MoveTimer,
    NewMessage,
    Noted,
    Outcome,
    Paced,
    Rate,
    Set,
    SetMode,
    SetNote,
    SetTimer,
    Shielded,
    Store,
    Write,
    connect,
    keys,
)
from tests.lanes.protocol.lua.model.lanes import HOLD_MINUTES, SUSPECT_AFTER, Model, ModelMessage, limits_of, unique
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    CLOCK,
    FENCES_FROM,
    INTERRUPTING,
    KEPT,
    LEASE_MS,
    MINUTE_MS,
    STEERING,
    TALK,
    State,
    TimerState,
)

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("STATE_MACHINE_EXAMPLES", "100"))
STEPS = 50
#: Shrinking a failure takes minutes, so it is optional.
PHASES = [Phase.generate, *([Phase.shrink] if "STATE_MACHINE_SHRINK" in os.environ else [])]
MAX_DEATHS = 3
QUEUES = ["q", "r"]
HOLDERS = ["me", "you"]
OWNERS = ["me", "you"]
KEYS = [
    keys.LEASES,
    keys.DELAYED,
    keys.DEAD,
    keys.TIMERS,
    *map(keys.TIMER.__add__, OWNERS),
    *map(keys.OVERFLOW.__add__, OWNERS),
    *map(keys.pending, "qr"),
    *map(keys.lane, "abcd"),
]
LEFT_WHEN_SETTLED = (
    keys.COUNTS,
    keys.SETTLED,
    keys.PARKED,
    keys.SEEN,
    keys.LAST,
    keys.MISSING,
    keys.NOTES,
    keys.MODES,
    keys.RATE,
    keys.PACES,
    keys.SWEPT,
    keys.IDENTITY,
    KEPT,
)

OVERS: list[Literal["drop", "delay", "mark"]] = ["drop", "delay", "mark"]
#: Two at once, and then one in every ten minutes.
a_rate = st.one_of(
    st.none(),
    st.sampled_from([Rate(key, 2, 20 * MINUTE_MS, over) for key in "st" for over in OVERS]),
)
a_limit = st.sampled_from([Limited("x", 1), Limited("x", 2), Limited("y", 1), Limited("z", 2)])
a_lane = st.one_of(st.sampled_from([*"abcd", Paced("a", "1/h"), Paced("b", "2/h")]), a_limit)


def with_one_limit_of_a_key(lanes: list[str]) -> list[str]:
    first = {str(key): key for key in reversed(lanes) if isinstance(key, Limited)}
    return [key for key in lanes if not isinstance(key, Limited) or key.concurrency == first[str(key)].concurrency]


a_batch = st.lists(
    st.tuples(
        st.integers(-3, 5),  # its number, relative to the highest one so far
        st.sampled_from(QUEUES),
        st.one_of(
            st.lists(a_lane, max_size=3).map(with_one_limit_of_a_key), st.sampled_from(["a", "b", "ab"]).map(list)
        ),
        st.sampled_from([None, None, None, "Malformed"]),
        st.sampled_from([None, TALK, INTERRUPTING, INTERRUPTING, STEERING, TALK._replace(name="h")]),
        st.sampled_from([False, False, False, True]),  # whether it stops
        a_rate,
    ),
    max_size=5,
)


a_kept_key = st.sampled_from("xyz").map(KEPT.__add__)
an_owner, a_name = st.sampled_from(OWNERS), st.sampled_from("xyz")
# Lanes with a rate, or beside a limit, are stored once each.
some_lanes = st.lists(a_lane, max_size=2).map(
    lambda lanes: (
        [*unique(lanes), *limits_of(lanes)] if any(isinstance(key, Paced | Limited) for key in lanes) else lanes
    )
)
some_minutes = st.sampled_from([-2, -1, 10])
some_writes = st.lists(
    st.one_of(
        st.builds(
            Set, a_kept_key, st.binary(max_size=2).map(bytes.hex).map(str.encode), st.sampled_from([0, LEASE_MS])
        ),
        st.builds(Delete, a_kept_key),
        st.builds(Move, a_kept_key, a_kept_key),
        st.builds(CancelTimer, an_owner, a_name),
        st.builds(
            SetMode, st.sampled_from(["queue", "collect", "interrupt", "steer", None]), st.sampled_from(["", *"abcd"])
        ),
        st.builds(SetNote, st.sampled_from("abcd"), st.sampled_from(["a question", "another", None])),
        st.builds(
            MoveTimer,
            an_owner,
            a_name,
            st.just(""),
            an_owner,
            st.sampled_from(QUEUES),
            st.just(""),
            lanes=some_lanes,
        ),
        st.builds(
            SetTimer,
            an_owner,
            a_name,
            st.just(""),
            st.sampled_from(["", *QUEUES]),
            st.just(""),
            in_ms=some_minutes.map(MINUTE_MS.__mul__),
            lanes=some_lanes,
        ),
    ),
    max_size=3,
)
a_position = st.sampled_from(["1", "2", "3", "hook1/1", "hook1/2"])
a_call = st.sampled_from(["x", "x", "x", "y"])
LARGE = "x" * 2048
LATE = [
    "settle",
    "commit",
    "release",
    "death",
    "retry",
    "park",
    "bury",
    "renew",
    "begin",
    "end",
    "shield",
    "take",
    "leave",
    "gather",
]


class LanesMachine(RuleBasedStateMachine):
    """The verbs as rules, each on the server and on the model."""

    client: Redis
    stores: list[Store]

    @initialize()
    def start(self) -> None:
        self.client.flushall()
        self.store = Store(self.client)
        self.stores.append(self.store)
        self.model = Model()
        self.highest = 10
        self.bells: set[str] = set()
        self.hand_outs: list[tuple[str, str]] = []  # (id, fence) of every hand-out
        self.last_seq: dict[str, int] = {}  # lane -> seq of its last message that was handed out
        self.appended: set[str] = set()
        self.settled: list[str] = []
        self.timers = 0  # set so far
        self.firings = 0  # of schedules so far
        self.adoptions = 0

    # The verbs of workers and pollers.

    @rule(batch=a_batch, holds=st.booleans())
    def append(
        self, batch: list[tuple[int, str, list[str], str | None, Group | None, bool, Rate | None]], holds: bool
    ) -> None:
        messages, added = [], 0
        dropped = self.model.counts["rate_dropped"]
        self.appended.update(self.model.fire_due([timer.decode() for timer in self.client.zrange(keys.TIMERS, 0, -1)]))
        for offset, queue, lanes, problem, group, stops, rate in batch:
            if group or rate:
                lanes = [str(lane) for lane in lanes if not isinstance(lane, Limited)]  # they cannot have both
            number = max(self.highest + offset, 1)
            self.highest = max(self.highest, number)
            message_id = f"1:{number}"
            error = {"type": problem} if problem else None
            body = f"body of {message_id}"
            once = "1", number
            messages.append(NewMessage(message_id, queue, body, lanes, once, error, group, stops=stops, rate=rate))
            if self.model.append(number, queue, lanes, problem, group, holds=holds, stops=stops, rate=rate):
                added += 1
                self.appended.add(message_id)
        self.model.give_up_gaps()
        appended = self.store.append(messages, hold_ms=HOLD_MINUTES * MINUTE_MS if holds else 0)
        dropped = self.model.counts["rate_dropped"] - dropped
        assert (appended.added, appended.seen, appended.over_rate) == (added, len(batch) - added - dropped, dropped)
        assert appended.pending == self.model.pending({message.queue for message in messages})
        assert (appended.due_ms is None) == (not self.model.gaps)
        self.compare()

    @precondition(lambda self: self.grouped())
    @rule(data=st.data(), holds=st.booleans(), count=st.integers(1, 2), rate=a_rate)
    def append_to_a_group(self, data: st.DataObject, holds: bool, count: int, rate: Rate | None) -> None:
        """Append messages that would join a group, if it is still open."""
        running = [item for item in self.grouped() if item.state == "leased"]
        item = self.draw(data, running or self.grouped())
        self.append([(1, item.queue, [*item.lanes], None, item.group, False, rate)] * count, holds)

    @precondition(lambda self: self.model.in_state("leased"))
    @rule(data=st.data(), group=st.sampled_from([None, INTERRUPTING]))
    def stop_a_run(self, data: st.DataObject, group: Group | None) -> None:
        item = self.draw(data, self.model.in_state("leased"))
        self.append([(1, item.queue, [*item.lanes], None, group, True, None)], False)

    @rule(
        lanes=st.sampled_from(["a", "b", "ab", "cd"]).map(list),
        count=st.integers(1, 2),
        group=st.sampled_from([INTERRUPTING, STEERING]),
    )
    def run_a_group(self, lanes: list[str], count: int, group: Group) -> None:
        """Append an interruptible or a steered group, and lease it if no other message is before it."""
        self.append([(1, "q", lanes, None, group, False, None)] * count, False)
        for item in self.collected():
            self.end_collecting(item)
        self.sweep()
        self.take_turn(QUEUES, "me", 4, [], [])

    def grouped(self) -> list[ModelMessage]:
        return [item for item in self.model.in_order() if item.group]

    @rule(
        data=st.data(),
        queues=st.permutations(QUEUES).flatmap(lambda order: st.integers(1, 2).map(lambda n: order[:n])),
        holder=st.sampled_from(HOLDERS),
        room=st.integers(0, 4),
    )
    def turn(self, data: st.DataObject, queues: list[str], holder: str, room: int) -> None:
        held = self.model.in_state("leased", holder)
        done = data.draw(st.lists(st.sampled_from(held), unique_by=lambda item: item.id)) if held else []
        stale = data.draw(st.lists(st.sampled_from(self.stale()), max_size=2)) if self.stale() else []
        self.take_turn(queues, holder, room, done, stale)

    def take_turn(
        self, queues: list[str], holder: str, room: int, done: list[ModelMessage], stale: list[tuple[str, str]]
    ) -> None:
        self.client.delete(*map(keys.bell, queues))  # as a worker that they woke
        self.bells -= set(queues)
        holding = len(self.model.in_state("leased", holder)) - len(done)
        settles = [*stale, *((item.id, str(item.fence)) for item in done)]
        turned = self.store.turn(
            queues, holder=holder, lease_ms=LEASE_MS, room=room, holding=holding, settles=settles, max_deaths=MAX_DEATHS
        )
        assert turned.lost == [message_id for message_id, _ in stale]
        self.model.counts["refused"] += len(stale)
        for item in done:
            self.model.settle(item)
            self.settled += item.names
        self.model.end_due()
        buried = self.bury_after_max_deaths(queues)
        for message in turned.leased:
            self.handed_out(message, queues, holder)
        assert turned.more == bool(self.model.ready(queues))
        if not buried:  # a message that a burial makes ready, in an empty queue, is left for the next turn
            self.check_room_is_used(queues, room, holding, turned)
        self.compare()
        assert all((queue in self.bells) == bool(self.model.ready([queue])) for queue in queues)

    def bury_after_max_deaths(self, queues: list[str]) -> int:
        """Bury in the model what the turn has buried, which depends on the order of its queues."""
        buried = 0
        while found := [
            item
            for item in self.model.ready(queues)
            if item.died >= MAX_DEATHS and self.client.hget(keys.message(item.id), "state") == b"buried"
        ]:
            self.model.bury(found[0], "Buried")
            buried += 1
        return buried

    def handed_out(self, message: Leased, queues: list[str], holder: str) -> None:
        item = self.model.items[message.id]
        assert item in self.model.ready(queues), f"{item} is not ready"
        for lane in item.lanes:
            assert not [other for other in self.model.in_state("leased") if lane in other.lanes], f"{lane} is leased"
            assert item.seq >= self.last_seq.get(lane, 0), f"{item} is out of order in {lane}"
            is_paced = isinstance(lane, Paced) and item.stopped is None
            assert not is_paced or self.model.paces.get(lane, 0) <= 0, f"{item} starts before the rate of {lane} allows"
            self.last_seq[lane] = item.seq
        assert (message.queue, message.died, message.failed) == (item.queue, item.died, item.failed)
        assert (message.replayed_s is None) == (item.replayed is None)
        assert (message.stored, message.interrupted) == (item.body.encode(), item.interrupted)
        assert (message.is_stopped, message.is_marked) == (item.stopped is not None, item.is_marked)
        assert message.is_gathered == item.is_gathered
        assert message.note == self.model.notes.get(item.lanes[0] if item.lanes else "", "")
        self.model.hand_out(item, holder)
        self.hand_outs.append((message.id, message.fence))

    def check_room_is_used(self, queues: list[str], room: int, holding: int, turned: Fetched) -> None:
        alone = [message for message in turned.leased if message.died >= SUSPECT_AFTER]
        left = self.model.ready(queues)
        suspects = [item for item in left if SUSPECT_AFTER <= item.died < MAX_DEATHS]
        assert not turned.suspects or suspects
        assert len(turned.leased) <= room
        if alone:
            assert (len(turned.leased), holding) == (1, 0)
        elif len(turned.leased) < room:
            assert left == suspects
            assert turned.suspects == bool(suspects)
            assert not suspects or holding + len(turned.leased) > 0

    @precondition(lambda self: self.model.in_state("leased"))
    @rule(data=st.data(), died=st.booleans(), started=st.booleans())
    def release(self, data: st.DataObject, died: bool, started: bool) -> None:
        item = self.draw(data, self.model.in_state("leased"))
        assert self.store.release([(item.id, str(item.fence))], died=died, started=started) == []
        self.model.release(item, died=died, started=started or died)
        self.compare()

    @precondition(lambda self: self.model.in_state("leased"))
    @rule(data=st.data(), minutes=st.sampled_from([-1, 10]))
    def retry(self, data: st.DataObject, minutes: int) -> None:
        item = self.draw(data, self.model.in_state("leased"))
        delay_ms = minutes * MINUTE_MS
        assert self.store.retry(item.id, str(item.fence), delay_ms=delay_ms, problem={"type": "E"}) is Outcome.DONE
        self.model.retry(item, minutes, "E")
        self.compare()

    @precondition(lambda self: self.model.in_state("leased"))
    @rule(data=st.data(), minutes=st.sampled_from([-1, 10]))
    def park(self, data: st.DataObject, minutes: int) -> None:
        item = self.draw(data, self.model.in_state("leased"))
        delay_ms = minutes * MINUTE_MS
        assert self.store.park(item.id, str(item.fence), delay_ms=delay_ms, kind="E", reason="why") is Outcome.DONE
        self.model.park(item, minutes)
        self.compare()

    @precondition(lambda self: self.model.in_state("leased"))
    @rule(data=st.data())
    def bury(self, data: st.DataObject) -> None:
        item = self.draw(data, self.model.in_state("leased"))
        assert self.store.bury(item.id, str(item.fence), {"type": "E"}) is Outcome.DONE
        self.model.bury(item, "E")
        self.compare()

    @precondition(lambda self: self.model.in_state("leased"))
    @rule(data=st.data(), writes=some_writes, skipped=st.booleans())
    def commit(self, data: st.DataObject, writes: list[Write], skipped: bool) -> None:
        item = self.draw(data, self.model.in_state("leased"))
        writes = [self.named(write) if isinstance(write, SetTimer) else self.known(write) for write in writes]
        assert self.store.commit(item.id, str(item.fence), writes, skipped=skipped) is Outcome.DONE
        self.model.commit(item, writes)
        self.model.counts["skipped"] += skipped
        self.settled += item.names
        # A timer that the same commit also cancels, replaces or moves has announced its queue.
        self.bells |= {write.queue or item.queue for write in writes if isinstance(write, SetTimer)}
        self.compare()

    def known(self, write: Write) -> Write:
        """For the move of a timer the id that it has, unless there is none."""
        if not isinstance(write, MoveTimer):
            return write
        timer = self.model.timers.get(keys.timer(write.owner, write.name))
        id_ = timer.id if timer else "none"
        return replace(write, id=id_, stored=f"body of {id_}")

    def named(self, timer: SetTimer) -> SetTimer:
        """The timer with an id and a stored form of its own. Some are too large for the string of their owner."""
        self.timers += 1
        id_ = LARGE * (self.timers % 3 == 0) + f"timer:{self.timers}"
        return replace(timer, id=id_, stored=f"body of {id_}")

    @rule(owner=an_owner, name=a_name, lanes=some_lanes, queue=st.sampled_from(QUEUES), minutes=some_minutes)
    def schedule(self, owner: str, name: str, lanes: list[str], queue: str, minutes: int) -> None:
        timer = self.named(SetTimer(owner, name, "", queue, ""))
        message = NewMessage(timer.id, queue, timer.stored, lanes)
        assert self.store.schedule(message, owner, name, in_ms=minutes * MINUTE_MS)
        self.model.schedule(TimerState(owner, name, timer.id, minutes, tuple(lanes), queue, str(timer.stored)))
        if minutes <= 0:
            self.appended.update(self.model.fire_due(self.due_timers()))
            self.bells.add(queue)  # it may be set for a message that waits in its lanes
        self.compare()

    def due_timers(self) -> list[str]:
        """The timers that the server has fired and the model has not, in the order of their messages."""
        due = [timer for timer in self.model.timers.values() if timer.minutes <= 0]
        seqs = {timer.key: int(self.client.hget(keys.message(timer.id), "seq") or 0) for timer in due}
        assert all(seqs.values()), "a timer that is due has not fired"
        return sorted(seqs, key=seqs.__getitem__)

    @rule(
        owner=an_owner,
        name=a_name,
        what=st.sampled_from(["fire", "fire", "remove", "late", "early"]),
        lanes=some_lanes,
        count=st.integers(0, 2),
        watchers=st.integers(1, 3),
    )
    def advance(self, owner: str, name: str, what: str, lanes: list[str], count: int, watchers: int) -> None:
        """Watchers fire a schedule; some have read an older record, or have a clock that is fast."""
        self.firings += 1
        ids = [f"schedule:{self.firings}:{number}" for number in range(count)]
        known = self.model.schedules.get(keys.timer(owner, name), "")
        record = "" if what == "remove" else f"record {self.firings}"
        now_ms, _ = self.store.schedules()
        is_first = what in ("fire", "remove")
        for number in range(watchers):
            advanced = self.store.advance(
                owner,
                name,
                known=b"older" if what == "late" else known.encode(),
                record=record.encode(),
                until_ms=now_ms + MINUTE_MS if what == "early" else now_ms,
                messages=[NewMessage(each, "q", f"body of {each}", lanes) for each in ids],
            )
            assert advanced == (is_first and (number == 0 or record == known))
        if is_first:
            self.model.advance(owner, name, record, ids, lanes)
            self.appended.update(ids)
        self.compare()

    @rule(data=st.data(), lanes=some_lanes, count=st.integers(1, 3), minutes=some_minutes)
    def adopt(self, data: st.DataObject, lanes: list[str], count: int, minutes: int) -> None:
        """New messages, a copy of one that waits, and one that a worker takes first, move from a list."""
        ids = [f"old {self.adoptions}.{number}" for number in range(count)]
        self.adoptions += 1
        waiting = [each for each in self.model.in_order() if each.state not in ("leased", "committing")]
        copies = [self.draw(data, waiting).id] if waiting else []
        at_ms = self.store.schedules()[0] + minutes * MINUTE_MS
        elements = [
            Element(
                f"element {each}".encode(),
                NewMessage(each, "q", f"body of {each}", lanes),
                (f"task {each}", "eta") if number == 0 else None,
                at_ms,
            )
            for number, each in enumerate([*ids, *copies, "taken"])
        ]
        for each in elements[:-1]:
            self.client.lpush("old", each.stored)
        waits = int(minutes > 0)
        expected = [Adopted.MOVED] * count + [Adopted.KNOWN] * len(copies) + [Adopted.NOT_THERE]
        if waits:
            expected[0] = Adopted.SCHEDULED
        assert self.store.adopt("old", elements, first=-len(elements), last=-1) == expected
        self.model.adopt(ids, lanes, minutes)
        self.appended.update(ids[waits:])
        self.compare()

    @rule(queue=st.sampled_from(QUEUES), count=st.integers(1, 4))
    def move_out(self, queue: str, count: int) -> None:
        """The first ones of a queue move to a list, unless they are with workers or behind others that stay."""
        chosen = [each for each in self.model.in_order() if each.queue == queue and each.state != "buried"][:count]
        stored = [self.client.get(keys.body(each.id)) or b"" for each in chosen]
        leaving = [Leaving(each.id, body, each.id.encode()) for each, body in zip(chosen, stored, strict=True)]
        moved = self.model.move_out(chosen)
        assert self.store.move_out("old", leaving) == [each in moved for each in chosen]
        assert self.client.lrange("old", 0, -1)[::-1] == [each.id.encode() for each in moved]
        self.client.delete("old")
        for each in moved:
            self.settled += each.names
        self.compare()

    @rule(owner=an_owner, name=a_name)
    def cancel(self, owner: str, name: str) -> None:
        assert self.store.cancel(owner, name) == self.model.cancel(owner, name)
        self.compare()

    @precondition(lambda self: self.model.timers)
    @rule(data=st.data())
    def make_a_timer_due(self, data: st.DataObject) -> None:
        self.make_due(data.draw(st.sampled_from(sorted(self.model.timers))))

    def make_due(self, timer: str) -> None:
        self.client.zincrby(keys.TIMERS, -(self.model.timers[timer].minutes + 1) * MINUTE_MS, timer)
        self.model.make_due(timer)
        self.compare()

    @precondition(lambda self: self.model.in_state("leased"))
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        item = self.draw(data, self.model.in_state("leased"))
        assert self.store.renew([(item.id, str(item.fence))], LEASE_MS) == []
        self.model.renew(item)
        self.compare()

    @precondition(lambda self: self.model.in_state("leased"))
    @rule(data=st.data(), position=a_position, what=a_call)
    def begin(self, data: st.DataObject, position: str, what: str) -> None:
        item = self.draw(data, self.model.in_state("leased"))
        begun = self.store.begin(item.id, str(item.fence), lease_ms=LEASE_MS, position=position, what=what)
        assert begun == self.model.begin(item, position, what)
        self.compare()

    @precondition(lambda self: self.model.in_state("leased"))
    @rule(data=st.data(), position=a_position, what=a_call, kind=st.sampled_from(Kind), outcome=st.sampled_from("rs"))
    def end(self, data: st.DataObject, position: str, what: str, kind: Kind, outcome: str) -> None:
        item = self.draw(data, self.model.in_state("leased"))
        ended = self.store.end(
            item.id, str(item.fence), position=position, what=what, kind=kind, outcome=outcome.encode()
        )
        assert ended is Outcome.DONE
        item.journal.end(item.fence or 0, position, what, kind, outcome)
        self.compare()

    @precondition(lambda self: self.model.in_state("leased"))
    @rule(
        data=st.data(),
        shields=st.booleans(),
        appends=st.integers(0, 2),
        unshields=st.booleans(),
        stops=st.booleans(),
        rate=a_rate,
    )
    def shield(
        self, data: st.DataObject, shields: bool, appends: int, unshields: bool, stops: bool, rate: Rate | None
    ) -> None:
        grouped = [item for item in self.grouped() if item.state == "leased"]
        item = self.draw(data, grouped or self.model.in_state("leased"))
        if shields:
            item.is_shielded = True
            assert self.store.shield(item.id, str(item.fence), shielded=True) is Shielded.DONE
            self.append([(1, item.queue, [*item.lanes], None, item.group, stops, rate)] * appends, False)
        if unshields and item.state == "leased":
            fence = str(item.fence)
            expected = Shielded.INTERRUPTED if self.model.unshield(item) else Shielded.DONE
            assert self.store.shield(item.id, fence, shielded=False) is expected
            self.compare()

    def steered(self) -> list[ModelMessage]:
        return [item for item in self.model.in_state("leased") if item.group and item.group.steers]

    @precondition(lambda self: self.steered())
    @rule(
        data=st.data(),
        appends=st.integers(0, 3),
        takes=st.integers(0, 3),
        place=st.integers(0, 5),
        repeats=st.booleans(),
    )
    def take(self, data: st.DataObject, appends: int, takes: int, place: int, repeats: bool) -> None:
        """A run takes what has arrived. With `repeats`, an answer is lost, and it asks again."""
        item = self.draw(data, self.steered())
        self.append([(1, item.queue, [*item.lanes], None, item.group, False, None)] * appends, False)
        fence = str(item.fence)
        for _ in range(takes):
            known = len(item.taken)
            name = self.model.take(item, place)
            answers = [
                self.store.take(item.id, fence, known=known, place=place)
                for _ in range(1 + (repeats and name is not None))
            ]
            for answer in answers:
                assert answer
                assert answer.places == [at for at, *_ in item.taken]
                expected = [] if name is None else [f" body of {name}".encode()]
                assert answer.bodies[len(answer.bodies) - len(expected) :] == expected
                assert answer.more == (self.model.can_take(item) is not None)
            self.compare()

    @precondition(lambda self: any(item.taken for item in self.steered()))
    @rule(data=st.data(), kept=st.integers(0, 2))
    def leave(self, data: st.DataObject, kept: int) -> None:
        item = self.draw(data, [item for item in self.steered() if item.taken])
        self.model.leave(item, kept)
        assert self.store.leave(item.id, str(item.fence), kept=kept) is Outcome.DONE
        self.compare()

    @precondition(lambda self: self.model.in_state("leased"))
    @rule(data=st.data(), most=st.integers(0, 3))
    def gather(self, data: st.DataObject, most: int) -> None:
        item = self.draw(data, self.model.in_state("leased"))
        lanes = [self.client.zrange(keys.lane(lane), 1, most) if most else [] for lane in item.lanes[:1]]
        behind = [each.decode() for found in lanes for each in found]
        gathered = self.model.gather(item, most)
        assert behind[: len(gathered)] == gathered
        assert self.store.gather(item.id, str(item.fence), behind) == len(gathered)
        self.compare()

    @precondition(lambda self: self.stale())
    @rule(data=st.data(), verb=st.sampled_from(LATE))
    def late_verb(self, data: st.DataObject, verb: str) -> None:
        message_id, fence = data.draw(st.sampled_from(self.stale()))
        late: dict[str, Callable[[], Any]] = {
            "settle": lambda: (
                self.store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=0, settles=[(message_id, fence)]).lost
            ),
            "commit": lambda: self.store.commit(
                message_id,
                fence,
                [
                    Set(KEPT + "x", b"late"),
                    Delete(KEPT + "y"),
                    SetTimer("me", "x", "late", "q", b""),
                    CancelTimer("me", "y"),
                    SetNote("a", "late"),
                    SetMode("steer", "a"),
                ],
            ),
            "release": lambda: self.store.release([(message_id, fence)]),
            "death": lambda: self.store.release([(message_id, fence)], died=True),
            "retry": lambda: self.store.retry(message_id, fence, delay_ms=0, problem={"type": "late"}),
            "park": lambda: self.store.park(message_id, fence, delay_ms=0),
            "bury": lambda: self.store.bury(message_id, fence, {"type": "late"}),
            "renew": lambda: self.store.renew([(message_id, fence)], LEASE_MS),
            "begin": lambda: self.store.begin(message_id, fence, lease_ms=LEASE_MS, position="1", what="x").noted,
            "end": lambda: self.store.end(message_id, fence, position="1", what="x", kind=Kind.DONE),
            "shield": lambda: self.store.shield(message_id, fence, shielded=True),
            "take": lambda: self.store.take(message_id, fence, known=0, place=0) or Outcome.LOST,
            "leave": lambda: self.store.leave(message_id, fence, kept=0),
            "gather": lambda: self.store.gather(message_id, fence, ["x"]),
        }
        assert late[verb]() in ([message_id], Outcome.LOST, Noted.LOST, Shielded.LOST, None)
        assert not self.store.holds(message_id, fence)
        # The end of a call may arrive after the commit of its own run.
        item = self.model.items.get(message_id)
        if verb != "end":
            self.model.counts["refused"] += verb != "renew"
        elif item and not item.journal.end_left(int(fence), "1", "x"):
            self.model.counts["refused"] += 1
        self.compare()

    @precondition(lambda self: self.model.items)
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        item = self.draw(data, self.model.in_state("buried") or self.model.in_order())
        assert self.store.replay(item.id) == (item.state == "buried")
        if item.state == "buried":
            self.model.replay(item)
        self.compare()

    @rule(key=st.sampled_from("st"))
    def recover_a_rate(self, key: str) -> None:
        self.client.delete(keys.RATE + key)
        self.model.rates.pop(key, None)

    @rule(lane=st.sampled_from("abcdxyz"))
    def pause_or_resume(self, lane: str) -> None:
        is_paused = lane in self.model.paused
        assert self.store.pause("lane", lane) != is_paused
        if is_paused:
            assert self.store.resume("lane", lane)
        assert self.store.resume("lane", "none") is False
        self.model.paused ^= {lane}
        self.compare()

    @precondition(lambda self: self.model.items)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        item = self.draw(data, self.model.in_state("buried") or self.model.in_order())
        assert self.store.drop(item.id) == (item.state == "buried")
        if item.state == "buried":
            self.model.drop(item)
            self.appended -= {*item.names}
        self.compare()

    @rule(queue=st.sampled_from(QUEUES))
    def purge(self, queue: str) -> None:
        assert self.store.purge(queue) == self.model.purge(queue)
        self.compare()

    @rule(data=st.data(), holder=st.sampled_from(HOLDERS))
    def reconcile(self, data: st.DataObject, holder: str) -> None:
        leased = self.model.in_state("leased", holder)
        unknown = data.draw(st.lists(st.sampled_from(leased), unique_by=lambda item: item.id)) if leased else []
        held = [item.id for item in leased if item not in unknown]
        assert self.store.reconcile(holder, [*held, "gone"]) == len(unknown)
        for item in unknown:
            self.model.release(item, started=False)
        self.compare()

    @rule()
    def sweep(self) -> None:
        in_order = [timer.decode() for timer in self.client.zrange(keys.TIMERS, 0, -1)]
        swept = self.store.sweep(LEASE_MS)
        assert (swept.expired, swept.due) == self.model.sweep()
        self.appended.update(self.model.fire_due(in_order))
        timed = [item for item in self.model.in_order() if item.minutes is not None or item.due is not None]
        assert (swept.next_ms is None) == (not timed and not self.model.timers and not self.model.paces)
        self.compare()

    # The passage of time: scores are changed, without sleeping.

    @precondition(lambda self: self.model.in_state("leased"))
    @rule(data=st.data())
    def expire_lease(self, data: st.DataObject) -> None:
        item = self.draw(data, self.model.in_state("leased"))
        self.overdue(keys.LEASES, item)

    @precondition(lambda self: self.model.in_state("delayed"))
    @rule(data=st.data())
    def end_delay(self, data: st.DataObject) -> None:
        self.overdue(keys.DELAYED, self.draw(data, self.model.in_state("delayed")))

    @precondition(lambda self: self.model.paces)
    @rule(data=st.data())
    def end_a_pace(self, data: st.DataObject) -> None:
        self.end_pace(data.draw(st.sampled_from(sorted(self.model.paces))))

    def end_pace(self, lane: str) -> None:
        """Messages that were delayed for it are delayed until they are due, as if they had more than one rate."""
        self.client.zincrby(keys.PACES, -(self.model.paces[lane] + 1) * MINUTE_MS, lane)
        self.model.paces[lane] = -1
        self.compare()

    @precondition(lambda self: self.collected())
    @rule(data=st.data(), sweeps=st.booleans())
    def end_quiet_time(self, data: st.DataObject, sweeps: bool) -> None:
        self.end_collecting(self.draw(data, self.collected()))
        if sweeps:
            self.sweep()
        else:
            self.take_turn(QUEUES, "me", 0, [], [])

    def collected(self) -> list[ModelMessage]:
        return [item for item in self.model.in_order() if item.due is not None]

    def end_collecting(self, item: ModelMessage) -> None:
        self.client.zincrby(keys.COLLECTING, -((item.due or 0) + 1) * MINUTE_MS, item.id)
        item.due = -1

    @rule()
    def lose_quiet_times(self) -> None:
        """Groups that are first are due at once, unless a held message joins them; others are ready when they are
        first.
        """
        self.client.delete(keys.COLLECTING)
        lost = [item for item in self.model.first() if item.due is not None]
        assert self.repair_round() == len(lost)
        self.model.counts["repaired"] += len(lost)
        for item in self.collected():
            item.due = 0 if item in lost else None
        self.sweep()

    @precondition(lambda self: self.model.gaps)
    @rule(data=st.data())
    def expire_any_hold(self, data: st.DataObject) -> None:
        self.expire_hold(data.draw(st.sampled_from(sorted(self.model.gaps))))

    def expire_hold(self, number: int) -> None:
        minutes = self.model.gaps[number]
        if minutes is not None:
            self.client.zincrby(keys.HELD, -(minutes + 1) * MINUTE_MS, f"1:{number}")
            self.model.gaps[number] = -1
            self.compare()

    @precondition(lambda self: self.model.missing)
    @rule(data=st.data())
    def expire_gaps(self, data: st.DataObject) -> None:
        """Let the lower gaps, which are older, expire: no message waits for them any longer."""
        highest = data.draw(st.sampled_from(sorted(self.model.missing)))
        key = keys.MISSING + "1"
        for member in self.client.zrangebyscore(key, "-inf", highest):
            number, _, until_ms = member.decode().partition(":")
            minutes = self.model.missing[int(number)]
            self.client.zrem(key, member)
            self.client.zadd(key, {f"{number}:{int(until_ms) - (minutes - 5) * MINUTE_MS}": int(number)})
            self.model.missing[int(number)] = 5
        self.compare()

    def overdue(self, zset: str, item: ModelMessage) -> None:
        minutes = (item.minutes or 0) + 1
        self.client.zincrby(zset, -minutes * MINUTE_MS, item.id)
        item.minutes = -1
        self.compare()

    @precondition(lambda self: self.model.swept is not None)
    @rule()
    def pause_sweeping(self) -> None:
        self.client.decrby(keys.SWEPT, 30 * MINUTE_MS)
        self.model.swept = (self.model.swept or 0) + 30

    @precondition(lambda self: [item for item in self.model.in_order() if item.state not in ("leased", "held")])
    @rule(data=st.data())
    def set_clock_back(self, data: st.DataObject) -> None:
        """Give a message a fence from the future, as if the clock had been set back since."""
        item = self.draw(data, [item for item in self.model.in_order() if item.state not in ("leased", "held")])
        fence = max(item.fence or 0, FENCES_FROM)
        self.client.hset(keys.message(item.id), "fence", fence)
        item.fence = fence
        self.compare()

    # Lost keys.

    @rule(data=st.data())
    def lose_a_key_and_repair(self, data: st.DataObject) -> None:
        lost = data.draw(st.sampled_from(["", "q", "r", *KEYS]))
        existed = bool(lost) and self.client.delete(lost) == 1
        total = 0
        while repairs := self.repair_round():
            total += repairs
        assert bool(total) == existed
        self.model.counts["repaired"] += total
        for item in self.model.in_order():
            if lost == keys.LEASES and item.state == "leased":
                self.model.renew(item)
            if lost == keys.DELAYED and item.state == "delayed":
                item.minutes = 0
        for key, timer in [*self.model.timers.items()]:
            if lost == keys.TIMERS:
                self.model.timers[key] = replace(timer, minutes=0)
            elif lost == (keys.OVERFLOW if timer.id.startswith(LARGE) else keys.TIMER) + timer.owner:
                del self.model.timers[key]
        self.compare()

    def repair_round(self) -> int:
        cursor, total = self.store.repair("0", LEASE_MS)
        while cursor != "0":
            cursor, repairs = self.store.repair(cursor, LEASE_MS)
            total += repairs
        return total

    # The checks after each step, and in the end.

    def compare(self) -> None:
        self.model.end_step()
        state = read(self.client)
        self.check_fences()
        expected = self.model.expected(state.bells)
        for queue, ready in state.ready.items():
            expected.ready[queue].sort(key=ready.index if sorted(ready) == sorted(expected.ready[queue]) else None)
        expected.dead.sort(key=state.dead.index if sorted(expected.dead) == sorted(state.dead) else None)
        for message_id, message in expected.messages.items():
            fence = message.fence
            short = None if fence is None else fence - FENCES_FROM if fence >= FENCES_FROM else CLOCK
            object.__setattr__(message, "fence", short)
            assert message_id in state.messages
        assert state == expected
        assert state.ready.keys() <= state.bells, "a queue has ready messages, but its bell is not set"
        timed = {item.queue for item in self.model.in_order() if item.group or item.has_turn}
        timed |= {timer.queue for timer in self.model.timers.values()}
        assert state.bells <= self.bells | state.ready.keys() | timed, "a bell was set without a reason"
        self.bells = state.bells
        self.check_limits(state)

    def check_limits(self, state: State) -> None:
        """Never more than may run, and nothing waits while a permit is free."""
        most = {(each.id, str(limit)): limit.concurrency for each in self.model.in_order() for limit in each.limits}
        for limit, ids in state.permits.items():
            assert len(ids) <= max(most[each, limit] for each in ids), f"too many of {limit}"
        for limit, [first, *_] in state.gates.items():
            taken = len(state.permits.get(limit, []))
            assert limit in self.model.paused or taken >= most[first, limit], f"a permit of {limit} is free"

    def check_fences(self) -> None:
        for item in self.model.in_order():
            found = self.client.hget(keys.message(item.id), "fence")
            fence = None if found is None else int(found)
            if item.id in self.model.refenced:
                assert fence is not None
                assert fence > (item.fence or 0), f"{item} kept its fence"
                item.fence = fence
            assert fence == item.fence
        self.model.refenced.clear()

    def stale(self) -> list[tuple[str, str]]:
        """(id, fence) of leases that are no longer valid, as a late holder would still use them."""
        current = {(item.id, str(item.fence)) for item in self.model.in_state("leased")}
        released = [(item.id, str(item.fence)) for item in self.model.in_order() if item.fence]
        return [pair for pair in dict.fromkeys([*self.hand_outs[-20:], *released]) if pair not in current]

    @staticmethod
    def draw(data: st.DataObject, items: list[ModelMessage]) -> ModelMessage:
        return data.draw(st.sampled_from(items))

    def teardown(self) -> None:
        with closing(self.store):
            self.run_all_to_their_end()

    def run_all_to_their_end(self) -> None:
        for lane in [*self.model.paused]:
            self.pause_or_resume(lane)
        for schedule in [*self.model.schedules]:
            self.advance(*schedule.split("\n"), "remove", [], 0, 1)
        for _ in range(1000):
            if not self.model.items and not self.model.timers:
                break
            self.advance_to_the_end()
        assert self.model.items == {}
        assert sorted(self.settled) == sorted(self.appended), "a message was lost or settled twice"
        self.take_turn(QUEUES, "me", 0, [], [])
        assert self.store.pending() == 0
        left = [key.decode() for key in self.client.scan_iter()]
        assert [key for key in left if not key.startswith(LEFT_WHEN_SETTLED)] == []

    def advance_to_the_end(self) -> None:
        for item in self.model.in_state("buried"):
            assert self.store.replay(item.id)
            self.model.replay(item)
            self.compare()
        for item in self.model.in_state("delayed"):
            self.overdue(keys.DELAYED, item)
        for number in self.model.gaps:
            self.expire_hold(number)
        for item in self.collected():
            self.end_collecting(item)
        for timer in [*self.model.timers]:
            self.make_due(timer)
        for lane in [*self.model.paces]:
            self.end_pace(lane)
        self.sweep()
        for holder in HOLDERS:
            self.take_turn(QUEUES, holder, 4, self.model.in_state("leased", holder), [])


@pytest.mark.every_server
def test_any_sequence_of_verbs(client: Redis, request: pytest.FixtureRequest) -> None:
    embedded = request.node.callspec.params["any_server"] == "valkey"
    run_sequences(client, EXAMPLES if embedded else EXAMPLES // 2)


def test_any_sequence_of_verbs_with_a_key_prefix(any_server: Server) -> None:
    with connect(any_server.url, prefix="sh*op:") as client:
        client.flushall()
        run_sequences(client, EXAMPLES // 5)
    with connect(any_server.url) as without_prefix:
        assert all(key.startswith(b"sh*op:") for key in without_prefix.scan_iter())


def run_sequences(client: Redis, examples: int) -> None:
    number = int(os.environ.get("STATE_MACHINE_SEED", random.randrange(2**32)))
    print(f"STATE_MACHINE_SEED={number}")  # pytest shows it when the test fails
    machine = seed(number)(type("LanesMachine", (LanesMachine,), {"client": client, "stores": []}))
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            derandomize=False,
            print_blob=True,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=PHASES,
        ),
    )
    for store in machine.stores:  # hypothesis does not end each machine that it has begun
        store.close()
