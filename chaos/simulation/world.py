"""The parts of a simulation: a source, workers, a person, and a clock. Each step is a choice of the scheduler with a
seed of its own, so that a run without some of its steps is a run too.

The clock moves by changing the times that Redis keeps, so nothing sleeps. All times are minutes, so the time that a
step really takes changes nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from celery_lanes.protocol import (
    CancelTimer,
    Group,
    Kind,
    Limited,
    NewMessage,
    Noted,
    Outcome,
    Paced,
    SetTimer,
    Shielded,
    Store,
    Write,
    keys,
)
from chaos.simulation.promises import PromiseBrokenError, Promises, Run, bodies_in

MINUTE_MS = 60_000
LEASE_MS, HOLD_MS = 10 * MINUTE_MS, 3 * MINUTE_MS
QUEUES, SCOPE, MAX_DEATHS, WORKERS = ["q.0", "q.1"], "1", 3, 6
LANES = [("a",), ("b",), ("a", "b"), ("c",), ("b", "c"), (Paced("d", "20/h"),), ("e",), ()]
X, Y = Limited("x", 2), Limited("y", 1)
LIMITED = [(X,), ("a", X), (Y, X), ("e", Y)]
GROUPS = [
    Group("collected", MINUTE_MS, 5 * MINUTE_MS, 3),
    Group("interrupting", MINUTE_MS, 5 * MINUTE_MS, 3, interrupts=True),
    Group("steered", MINUTE_MS, 5 * MINUTE_MS, 3, steers=True),
]
MOST_WAITING = 60
TIMES = (keys.LEASES, keys.DELAYED, keys.COLLECTING, keys.HELD, keys.TIMERS, keys.PACES)
#: Lets time pass: KEYS are sorted sets whose scores are times. Those of the gaps are in their members.
LATER = """
local by = tonumber(ARGV[1])
for _, key in ipairs(KEYS) do
  for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, -by, member) end
end
local swept = redis.call('GET', ARGV[2])
if swept then redis.call('SET', ARGV[2], string.format('%.0f', swept - by)) end
local gaps = redis.call('ZRANGE', ARGV[3], 0, -1, 'WITHSCORES')
for i = 1, #gaps, 2 do
  local number, until_ms = string.match(gaps[i], '^(%d+):(%d+)$')
  redis.call('ZREM', ARGV[3], gaps[i])
  redis.call('ZADD', ARGV[3], gaps[i + 1], number .. ':' .. string.format('%.0f', until_ms - by))
end
"""


@dataclass(frozen=True)
class Step:
    """One choice of the scheduler."""

    what: str
    seed: int


@dataclass
class Worker:
    """`finished`: runs whose settle has not been answered."""

    name: str
    is_up: bool = True
    runs: list[Run] = field(default_factory=list)
    finished: list[Run] = field(default_factory=list)


class World:
    """Starts with an empty database. `do` raises PromiseBrokenError."""

    def __init__(self, store: Store) -> None:
        self._store, self._client = store, store.client
        self._client.flushdb()
        self._client.script_flush()  # so that a recorder sees the scripts
        self._pass = self._client.register_script(LATER)
        self._numbers, self._started = 0, WORKERS
        self._workers = [Worker(f"w{n}") for n in range(WORKERS)]
        self._late: list[Callable[[], None]] = []
        self._skipped: list[int] = []
        self._sent: dict[int, NewMessage] = {}
        self._chance = random.Random()  # noqa: S311 - reproducible, not secret
        self.promises = Promises()

    def do(self, step: Step) -> None:
        self._chance.seed(step.seed)
        getattr(self, f"_{step.what}")()

    # -- the source

    def _append(self) -> None:
        if self._store.pending() < MOST_WAITING:
            self._add([self._new() for _ in range(self._chance.randint(1, 3))])

    def _append_behind(self) -> None:
        """To the group of a run in progress."""
        for _, run in self._a_run():
            sent = next((each for each in self._sent.values() if each.id == run.id), None)
            if sent and sent.group:
                self._numbers += 1
                self._add([self._message(self._numbers, tuple(sent.lanes), sent.group)])

    def _append_again(self) -> None:
        """The reply was lost, or the append arrives late."""
        if self._numbers:
            number = self._chance.randint(max(1, self._numbers - 20), self._numbers)
            if number in self._sent:
                self._store.append([self._sent[number]])

    def _append_stop(self) -> None:
        self._add([self._new()._replace(stops=True, group=None)])

    def _append_with_a_gap(self) -> None:
        """Later numbers come first. Those that are missing come soon, late, or never."""
        self._numbers += 1
        self._skipped.append(self._numbers)
        self._add([self._new()], holds=True)

    def _close_a_gap(self) -> None:
        if self._skipped:
            number = self._skipped.pop(self._chance.randrange(len(self._skipped)))
            self._add([self._message(number, self._chance.choice(LANES))], holds=True)

    def _append_malformed(self) -> None:
        self._add([self._new()._replace(problem={"type": "Malformed"}, group=None)])

    def _new(self) -> NewMessage:
        self._numbers += 1
        lanes = self._chance.choice(LIMITED if self._chance.random() < 0.15 else LANES)
        is_plain = lanes and not any(isinstance(each, Paced | Limited) for each in lanes)
        grouped = is_plain and self._chance.random() < 0.6
        group = GROUPS[self._numbers // 10 % len(GROUPS)]  # some in a row are of the same one
        return self._message(self._numbers, lanes, group if grouped else None)

    def _message(self, number: int, lanes: tuple[str, ...], group: Group | None = None) -> NewMessage:
        queue = QUEUES[len(lanes) % 2]
        once, stoppable = (SCOPE, number), self._chance.random() < 0.9
        return NewMessage(f"{SCOPE}:{number}", queue, f"m{number}", lanes, once, group=group, stoppable=stoppable)

    def _add(self, messages: list[NewMessage], *, holds: bool = False) -> None:
        for each in messages:  # before: a stopped or held message may be in another order than that of its number
            limits = tuple(key for key in each.lanes if isinstance(key, Limited))
            lanes = tuple(key for key in each.lanes if key not in limits)
            self.promises.stored(str(each.stored), lanes, in_order=not (self._skipped or holds))
            self.promises.limits[each.id] = limits
            self._sent[each.once[1] if each.once else 0] = each
        self._store.append(messages, hold_ms=HOLD_MS if holds else 0)
        if self._chance.random() < 0.05:
            self._late.append(lambda: self._append_late(messages))

    def _append_late(self, messages: list[NewMessage]) -> None:
        self._store.append(messages)

    # -- workers

    def _fetch(self) -> None:
        worker = self._worker()
        room, is_lost = self._chance.randint(0, 3), self._chance.random() < 0.04
        self._turn(worker, room, is_lost=is_lost)

    def _turn(self, worker: Worker, room: int, *, is_lost: bool = False) -> None:
        finished = list(worker.finished)
        turned = self._store.turn(
            QUEUES,
            holder=worker.name,
            lease_ms=LEASE_MS,
            room=room,
            holding=len(worker.runs),
            settles=[(run.id, run.fence) for run in finished],
            max_deaths=MAX_DEATHS,
        )
        lost = list(turned.lost)
        for run in finished:
            if run.id in lost:
                lost.remove(run.id)
            else:
                self.promises.was_settled(run)
        runs = [Run(each.id, each.fence, bodies_in(each.stored)) for each in turned.leased]
        for run in runs:
            self.promises.handed_out(run, self._buried)
        if any(self.promises.limits.get(run.id) for run in runs):
            self.promises.run_together(filter(self._runs, self._members(keys.LEASES)))
        if not is_lost:
            worker.finished = []
            worker.runs += runs

    def _call(self) -> None:
        """An effect of a handler, with its fence."""
        for worker, run in self._a_run():
            run.calls += 1
            position, what = str(run.calls), "call"
            begun = self._store.begin(run.id, run.fence, lease_ms=LEASE_MS, position=position, what=what)
            if begun.noted is Noted.LOST:
                worker.runs.remove(run)
                continue
            self.promises.had_effect(run)
            if self._chance.random() < 0.9:
                self._store.end(run.id, run.fence, position=position, what=what, kind=Kind.DONE)

    def _renew(self) -> None:
        worker = self._worker()
        lost = self._store.renew([(run.id, run.fence) for run in worker.runs], LEASE_MS) if worker.runs else []
        worker.runs = [run for run in worker.runs if run.id not in lost]

    def _finish(self) -> None:
        for worker, run in self._a_run():
            worker.runs.remove(run)
            worker.finished.append(run)

    def _commit(self) -> None:
        for worker, run in self._a_run():
            worker.runs.remove(run)
            writes, now_set, gone = self._timer_writes()
            if self._store.commit(run.id, run.fence, writes) is Outcome.DONE:
                self.promises.was_settled(run)
                for body in gone:
                    self.promises.forgotten(body)
                for body in now_set:
                    self.promises.stored(body, (), in_order=False)

    def _give_back(self) -> None:
        for worker, run in self._a_run():
            worker.runs.remove(run)
            verb, delay_ms = self._chance.choice(["release", "died", "retry", "park", "bury"]), self._delay_ms()
            self._send(partial(self._return, run, verb, delay_ms, self._chance.random() < 0.5))

    def _return(self, run: Run, verb: str, delay_ms: int, started: bool) -> None:
        match verb:
            case "release":
                self._store.release([(run.id, run.fence)], started=started)
            case "died":
                self._store.release([(run.id, run.fence)], died=True)
            case "retry":
                self._store.retry(run.id, run.fence, delay_ms=delay_ms, problem={"type": "E"})
            case "park":
                self._store.park(run.id, run.fence, delay_ms=delay_ms)
            case _:
                self._store.bury(run.id, run.fence, {"type": "E"})

    def _delay_ms(self) -> int:
        return self._chance.randint(0, 5) * MINUTE_MS

    def _shield(self) -> None:
        for worker, run in self._a_run():
            answer = self._store.shield(run.id, run.fence, shielded=self._chance.random() < 0.5)
            if answer is not Shielded.DONE:
                worker.runs.remove(run)

    def _take(self) -> None:
        for worker, run in self._a_run():
            known = self._store.take(run.id, run.fence, known=0, place=None)
            run.taken = len(known.places) if known else 0  # also by runs before it
            taken = self._store.take(run.id, run.fence, known=run.taken, place=run.calls)
            if taken is None:
                worker.runs.remove(run)
            else:
                run.members += [each for body in taken.bodies for each in bodies_in(body)]
                run.taken += len(taken.bodies)

    def _leave(self) -> None:
        for worker, run in self._a_run():
            if run.taken:
                kept = self._chance.randint(0, run.taken)
                if self._store.leave(run.id, run.fence, kept=kept) is Outcome.LOST:
                    worker.runs.remove(run)
                else:
                    left = run.taken - kept
                    run.members, run.taken = run.members[: len(run.members) - left], kept

    def _gather(self) -> None:
        for _, run in self._a_run():
            lanes = self.promises.lanes_of(run)
            if lanes and not run.calls:
                followers = self._members(keys.lane(lanes[0]), 1, 2)
                bodies = [self._bodies(each) for each in followers]
                count = self._store.gather(run.id, run.fence, followers) or 0
                run.members += [body for each in bodies[:count] for body in each]

    def _send(self, call: Callable[[], None]) -> None:
        """The call arrives now, twice, or later: also after the lease."""
        chance = self._chance.random()
        if chance < 0.85:
            call()
        if chance > 0.8:
            self._late.append(call)

    def _arrive(self) -> None:
        if self._late:
            self._late.pop(self._chance.randrange(len(self._late)))()

    # -- faults

    def _freeze(self) -> None:
        self._worker().is_up = False

    def _wake(self) -> None:
        for worker in self._workers:
            worker.is_up = worker.is_up or self._chance.random() < 0.5

    def _crash(self) -> None:
        """The worker that replaces it has another name. Its finished runs were not sent."""
        self._workers.remove(self._worker())
        self._started += 1
        self._workers.append(Worker(f"w{self._started}"))

    def _reconcile(self) -> None:
        worker = self._worker()
        self._store.reconcile(worker.name, [run.id for run in (*worker.runs, *worker.finished)])

    def _sweep(self) -> None:
        self._store.sweep(LEASE_MS)

    def _pass_time(self) -> None:
        minutes = self._chance.choice([1, 2, 5, 12])
        self._pass(keys=TIMES, args=[minutes * MINUTE_MS, keys.SWEPT, keys.MISSING + SCOPE])

    # -- a person, and timers

    def _replay(self) -> None:
        for id_ in self._a_dead_letter():
            self._replay_letter(id_)

    def _replay_letter(self, id_: str) -> None:
        for body in self._bodies(id_):
            self.promises.ended(body)  # it is behind the others now
        self._store.replay(id_)

    def _drop(self) -> None:
        for id_ in self._a_dead_letter():
            bodies = self._bodies(id_)
            if self._store.drop(id_):
                for body in bodies:
                    self.promises.forgotten(body)

    def _pause(self) -> None:
        self._store.pause("lane", self._chance.choice("abcde"))

    def _resume(self) -> None:
        self._store.resume("lane", self._chance.choice("abcde"))

    def _schedule(self) -> None:
        self._numbers += 1
        self._skipped = [number for number in self._skipped if number != self._numbers]
        body, lanes, name = f"t{self._numbers}", self._chance.choice(LANES[:5]), self._chance.choice("xyz")
        gone = self._timer_body(name)
        message = NewMessage(body, QUEUES[0], body, lanes)
        if self._store.schedule(message, "me", name, in_ms=self._chance.randint(0, 8) * MINUTE_MS):
            for each in gone:
                self.promises.forgotten(each)
            self.promises.stored(body, lanes, in_order=False)

    def _cancel(self) -> None:
        name = self._chance.choice("xyz")
        gone = self._timer_body(name)
        if self._store.cancel("me", name) != bool(gone):
            raise PromiseBrokenError(f"the timer {name} was cancelled although it was not set, or the other way round")
        for each in gone:
            self.promises.forgotten(each)

    def _timer_writes(self) -> tuple[list[Write], list[str], list[str]]:
        name, chance = self._chance.choice("xyz"), self._chance.random()
        gone = self._timer_body(name)
        if chance < 0.6:
            return [], [], []
        if chance < 0.7:
            return [CancelTimer("me", name)], [], gone
        self._numbers += 1
        body = f"t{self._numbers}"
        in_ms = self._chance.randint(0, 8) * MINUTE_MS
        return [SetTimer("me", name, body, QUEUES[0], body, in_ms=in_ms, lanes=["c"])], [body], gone

    def _timer_body(self, name: str) -> list[str]:
        return [timer.stored.decode() for timer in self._store.timers("me") if timer.name == name]

    # -- what several of them need

    def _members(self, zset: str, first: int = 0, last: int = -1) -> list[str]:
        found: list[Any] = self._client.zrange(zset, first, last)
        return [each.decode() for each in found]

    def _bodies(self, id_: str) -> list[str]:
        stored: Any = self._client.get(keys.body(id_))
        return bodies_in(stored or b"")

    def _runs(self, id_: str) -> bool:
        """A stopped message does not run, so it needs no permits."""
        return not self._client.hexists(keys.message(id_), "stopped")

    def _worker(self) -> Worker:
        """One that is up. If all are frozen, all wake."""
        if not any(worker.is_up for worker in self._workers):
            for worker in self._workers:
                worker.is_up = True
        return self._chance.choice([worker for worker in self._workers if worker.is_up])

    def _a_run(self) -> Iterator[tuple[Worker, Run]]:
        """None, if no worker has one."""
        held = [(worker, run) for worker in self._workers if worker.is_up for run in worker.runs]
        if held:
            yield self._chance.choice(held)

    def _a_dead_letter(self) -> Iterator[str]:
        if dead := self._members(keys.DEAD):
            yield self._chance.choice(dead)

    # -- the end

    def finish(self) -> None:
        """Nothing fails any more, and time passes: each message is settled."""
        self._late.clear()
        for lane in "abcde":
            self._store.resume("lane", lane)
        for _ in range(400):
            for id_ in self._members(keys.DEAD):
                self._replay_letter(id_)
            for worker in self._workers:
                worker.finished += worker.runs
                worker.runs = []
                self._store.reconcile(worker.name, [run.id for run in worker.finished])
                self._turn(worker, room=5)
            self._pass(keys=TIMES, args=[LEASE_MS, keys.SWEPT, keys.MISSING + SCOPE])
            self._store.sweep(LEASE_MS)
            if not self._store.pending() and not self._client.zcard(keys.TIMERS) and not self._busy():
                break
        self.promises.check_all_settled()

    def _buried(self) -> list[str]:
        return [body for each in self._members(keys.DEAD) for body in self._bodies(each)]

    def _busy(self) -> bool:
        return any(worker.runs or worker.finished for worker in self._workers) or bool(self._client.zcard(keys.DEAD))


#: How often each step is chosen.
WEIGHTS = {
    "append": 14,
    "append_again": 2,
    "append_stop": 1,
    "append_with_a_gap": 1,
    "close_a_gap": 1,
    "append_malformed": 1,
    "fetch": 22,
    "call": 10,
    "renew": 5,
    "finish": 12,
    "commit": 6,
    "give_back": 5,
    "shield": 3,
    "append_behind": 4,
    "take": 3,
    "leave": 1,
    "gather": 2,
    "arrive": 3,
    "freeze": 1,
    "wake": 2,
    "crash": 1,
    "reconcile": 2,
    "sweep": 6,
    "pass_time": 6,
    "replay": 2,
    "drop": 1,
    "pause": 1,
    "resume": 2,
    "schedule": 2,
    "cancel": 1,
}


def steps(seed: int, count: int) -> list[Step]:
    chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
    chosen = chance.choices([*WEIGHTS], [*WEIGHTS.values()], k=count)
    return [Step(what, chance.getrandbits(32)) for what in chosen]
