"""The lanes in Redis: one method for each script, with typed outcomes.

Guarantees that each method is one atomic step, and that a step with an old fence changes nothing and returns LOST.
Does not retry: a step whose answer was lost may have been done, and only the caller knows whether it may run twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from redis import Redis

from chatlanes.lanes.protocol import keys
from chatlanes.lanes.protocol.commands import (
    MAX_DEATHS,
    UNFINISHED,
    Guard,
    NewMessage,
    Write,
    append_command,
    append_row,
    begin_command,
    commit_commands,
    end_command,
    fetch_command,
    joined_lanes,
    problem_json,
    read_commands,
    shield_command,
    timer_key,
)
from chatlanes.lanes.protocol.replies import (
    Appended,
    Begun,
    Fetched,
    History,
    Kind,
    Loss,
    Outcome,
    Read,
    Shielded,
    StoredTimer,
    Swept,
    append_answer,
    begin_answer,
    fetch_answer,
    forgetting_answer,
    history_answer,
    loss_answer,
    read_answer,
    texts,
    timers_answer,
)
from chatlanes.lanes.protocol.scripts import Argument, script
from chatlanes.lanes.runtime.blocking import run_blocking

#: A script that processes more in one step would delay other clients.
SWEEP_LIMIT = 64
REPAIR_LIMIT = 200
PURGE_LIMIT = 100
OWNERS_AT_ONCE = 100


#: The messages of a lane key, a queue, or a group of queues can be paused.
Pausable = Literal["lane", "queue", "group"]


class Store:
    """The verbs. The client must not decode responses and must not retry (connect.py makes such clients)."""

    def __init__(self, client: Redis) -> None:
        self.client = client

    def append(self, messages: Iterable[NewMessage], guard: Guard | None = None, hold_ms: int = 0) -> Appended:
        """Appends a whole batch, all or nothing. With `hold_ms` the messages join their lanes in the order of their
        numbers, and a message is held for at most that long while a lower number is missing.

        Raises LeaseLost if the guard has another fence, and PublishRefused for a message that a worker could not lease.
        """
        return append_answer(script("append").run(self.client, append_command(messages, guard, hold_ms)))

    def turn(
        self,
        queues: Sequence[str],
        *,
        holder: str,
        lease_ms: int,
        room: int,
        holding: int = 0,
        settles: Sequence[tuple[str, str]] = (),
        max_deaths: int = MAX_DEATHS,
        first: int = 0,
        last: int = 0,
        last_room: int = 0,
        times: Mapping[str, int] | None = None,
    ) -> Fetched:
        """Settles (id, fence) pairs and leases up to `room` ready messages, in one step. The `first` queues are
        emptied before the others, and the `last` ones are read last (fetch_command). `times` is added to the counters
        in Redis (timings.py).
        """
        command = fetch_command(
            queues,
            holder=holder,
            lease_ms=lease_ms,
            room=room,
            holding=holding,
            settles=settles,
            max_deaths=max_deaths,
            first=first,
            last=last,
            last_room=last_room,
            times=times,
        )
        return fetch_answer(script("turn").run(self.client, command))

    def renew(self, leases: Iterable[tuple[str, str]], lease_ms: int) -> list[str]:
        """Extends leases; returns the ids whose lease was lost."""
        return texts(self._run("renew", group=leases, lease_ms=lease_ms))

    def release(self, leases: Iterable[tuple[str, str]], *, died: bool = False) -> list[str]:
        """Gives messages back untouched; returns the ids whose lease was lost."""
        return texts(self._run("release", group=[(id_, fence, int(died)) for id_, fence in leases]))

    def retry(self, message_id: str, fence: str, *, delay_ms: int, problem: dict[str, Any]) -> Outcome:
        """Gives a message back after a failure; its lanes wait until it is due."""
        return Outcome(self._run("retry", id=message_id, fence=fence, delay_ms=delay_ms, problem=problem_json(problem)))

    def park(self, message_id: str, fence: str, *, delay_ms: int, kind: str = "", reason: str = "") -> Outcome:
        """Postpones a message that has not failed; its lanes wait until it is due. Counted under `kind`, a word."""
        return Outcome(self._run("park", id=message_id, fence=fence, delay_ms=delay_ms, kind=kind, reason=reason))

    def bury(self, message_id: str, fence: str, problem: dict[str, Any]) -> Outcome:
        """Moves a message to the dead letters; its lanes continue."""
        return Outcome(self._run("bury", id=message_id, fence=fence, problem=problem_json(problem)))

    def commit(self, message_id: str, fence: str, writes: Iterable[Write] = (), *, skipped: bool = False) -> Outcome:
        """Does the writes, in this order, and settles: all or nothing. `skipped`: also counts it as not run."""
        for verb, command in commit_commands(message_id, fence, writes, skipped=skipped):
            code = int(verb.run(self.client, command))
        if code == UNFINISHED:
            while self.finish(message_id):
                pass
        return Outcome(min(code, 1))

    def finish(self, message_id: str) -> bool:
        """Does the next writes of a large commit that was decided. False: none are left."""
        return bool(self._run("finish", id=message_id))

    def begin(self, message_id: str, fence: str, *, lease_ms: int, position: str, what: str) -> Begun:
        """Records that a call is about to be made, or returns its outcome in an earlier run. Extends the lease."""
        cursor, was = "0", b""
        while True:
            command = begin_command(message_id, fence, lease_ms=lease_ms, position=position, what=what, cursor=cursor)
            answer = script("begin").run(self.client, command)
            forgetting = forgetting_answer(answer)
            if forgetting is None:
                return begin_answer(answer, was)
            cursor, was = forgetting[0], was or forgetting[1]

    def end(
        self, message_id: str, fence: str, *, position: str, what: str, kind: Kind, outcome: bytes = b""
    ) -> Outcome:
        """Records the outcome of a call that was begun."""
        command = end_command(message_id, fence, position=position, what=what, kind=kind, outcome=outcome)
        return Outcome(script("end").run(self.client, command))

    def shield(self, message_id: str, fence: str, *, shielded: bool) -> Shielded:
        """Keeps a run from being interrupted, or allows it again."""
        return Shielded(script("shield").run(self.client, shield_command(message_id, fence, shielded=shielded)))

    def schedule(
        self,
        message: NewMessage,
        owner: str,
        name: str,
        *,
        at_ms: int | None = None,
        in_ms: int = 0,
        replaces: bool = True,
    ) -> bool:
        """Sets the timer of this owner and name: the message joins the end of its lanes at `at_ms` (ms since 1970), or
        if that is None in `in_ms`. False: the message was seen before, or the timer is set and `replaces` is false.

        Raises PublishRefused for a message that a worker could not lease, and ValueError for an owner or name with
        control characters.
        """
        id_, queue, stored, scope, number, *_, lanes = append_row(message._replace(group=None))
        return bool(
            self._run(
                "schedule",
                timer=timer_key(owner, name),
                id=id_,
                queue=queue,
                lanes=lanes,
                stored=stored,
                at_ms="" if at_ms is None else at_ms,
                in_ms=in_ms,
                scope=scope,
                number=number,
                replaces=int(replaces),
                seen_ttl_s=keys.SEEN_TTL_S,
                seen_block=keys.SEEN_BLOCK,
                after_run=int(message.after_run),
            )
        )

    def cancel(self, owner: str, name: str) -> bool:
        """Removes a timer that is not due yet; False if there is none."""
        return bool(self._run("cancel", timer=timer_key(owner, name)))

    def timers(self, *owners: str) -> list[StoredTimer]:
        """The timers of these owners, the next one first. They are read in several steps."""
        verb, found = script("timers_of"), dict[tuple[str, str], StoredTimer]()
        left = [(owner, "0") for owner in owners]
        while left:
            some, left = left[:OWNERS_AT_ONCE], left[OWNERS_AT_ONCE:]
            cursors, *answer = verb.run(self.client, verb.command(group=some))
            found.update({(timer.owner, timer.name): timer for timer in timers_answer(answer)})
            left += [(owner, cursor.decode()) for (owner, _), cursor in zip(some, cursors, strict=True) if cursor]
        return sorted(found.values(), key=lambda timer: timer.at_ms)

    def timer_owners(self, prefix: str) -> list[str]:
        """The owners of timers that begin with `prefix`, sorted. Scans all timers, in small steps."""
        pattern = re.sub(r"([\\*?\[\]])", r"\\\1", prefix) + "*"
        found: Any = run_blocking(lambda: list(self.client.zscan_iter(keys.TIMERS, pattern, count=1000)))
        return sorted({timer.decode().partition("\n")[0] for timer, _ in found})

    def next_timers(self, start: int = 0, count: int = 100) -> list[StoredTimer]:
        """Of all timers the next ones, without the first `start`."""
        entries: list[Any] = self.client.zrange(keys.TIMERS, start, start + count - 1)
        places = [tuple(entry.decode().split("\n")) for entry in entries if b"\n" in entry]
        found = {(timer.owner, timer.name): timer for timer in self.timers(*{owner for owner, _ in places})}
        return [found[place] for place in places if place in found]

    def advance(
        self,
        owner: str,
        name: str,
        *,
        known: bytes,
        record: bytes,
        until_ms: int = 0,
        messages: Sequence[NewMessage] = (),
    ) -> bool:
        """Appends the messages of a schedule's occurrences up to `until_ms`, and replaces its record, in one step.

        False, and nothing was changed: the record is not `known`, so another process has done it, or `until_ms` is
        still to come by Redis' clock. An empty `record` removes the schedule.
        """
        rows = [(each.id, each.queue, each.stored, joined_lanes(each.lanes)) for each in messages]
        schedule = timer_key(owner, name)
        return bool(self._run("advance", group=rows, schedule=schedule, known=known, record=record, until_ms=until_ms))

    def schedules(self) -> tuple[int, dict[tuple[str, str], bytes]]:
        """Redis' time in ms, and the record of each schedule, by its owner and name."""
        with self.client.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.hgetall(keys.SCHEDULES)
            (seconds, microseconds), found = run_blocking(pipe.execute)
        records = {tuple(field.decode().split("\n")): record for field, record in found.items()}
        return seconds * 1000 + microseconds // 1000, records

    def replay(self, message_id: str) -> bool:
        """Puts a buried message at the end of its lanes; False if no such message is buried."""
        return bool(self._run("replay", id=message_id))

    def drop(self, message_id: str) -> bool:
        """Deletes a buried message; False if no such message is buried."""
        return bool(self._run("drop", id=message_id))

    def pause(self, what: Pausable, name: str) -> bool:
        """Stops handing out its messages. Running ones continue, new ones wait. False if it was paused already."""
        return bool(self._run("pause", what=what, named=name))

    def resume(self, what: Pausable, name: str, queues: Sequence[str] = ()) -> bool:
        """Hands out its messages again. Workers of `queues` are woken. False if it was not paused."""
        return bool(self._run("resume", keys=queues, what=what, named=name))

    def purge(self, queue: str) -> int:
        """Buries the ready messages of a queue, and those that become ready by that; returns how many were buried."""
        problem = problem_json({"type": "Purged", "message": f"queue {queue} was purged"})
        total = 0
        while buried := int(self._run("purge", keys=[queue], limit=PURGE_LIMIT, problem=problem)):
            total += buried
        return total

    def sweep(self, lease_ms: int, holder: str = "", slots: int = 0) -> Swept:
        """Takes back expired leases and makes due retries ready: at most SWEEP_LIMIT of each.

        `holder` is recorded as a worker that is alive and has this many `slots`, for people to look at.
        """
        expired, due, next_ms, history, set_back_ms = self._run(
            "sweep", lease_ms=lease_ms, limit=SWEEP_LIMIT, holder=holder, slots=slots
        )
        return Swept(expired, due, None if next_ms < 0 else next_ms, history_answer(history), set_back_ms)

    def look(self) -> History:
        """The identity of this database and its totals."""
        return history_answer(self._run("look"))

    def lose(self, known: History, found: History) -> tuple[str, Loss]:
        """Records that `found` is another database than `known`, or an older state of it.

        Returns the identity of the database now, and the loss.
        """
        identity, record = self._run(
            "lose",
            known=known.identity,
            appended=known.appended,
            settled=known.settled,
            ended=known.appended - known.pending,
            found=found.identity,
            found_appended=found.appended,
            found_settled=found.settled,
        )
        return identity.decode(), loss_answer(record)

    def acknowledge_losses(self) -> list[Loss]:
        """Marks every loss as seen by a person; returns those that were not marked before."""
        return [loss_answer(record) for record in self._run("acknowledge")]

    def repair(self, cursor: str, lease_ms: int) -> tuple[str, int]:
        """Repairs the keys of a few messages; returns the next cursor ("0" at the end) and the number of repairs."""
        following, repaired = self._run("repair", cursor=cursor, limit=REPAIR_LIMIT, lease_ms=lease_ms)
        return following.decode(), repaired

    def reconcile(self, holder: str, held: Iterable[str]) -> int:
        """Releases messages that are leased to `holder` but not in `held`; returns how many were released."""
        return int(self._run("reconcile", group=[(id_,) for id_ in held], holder=holder))

    def holds(self, message_id: str, fence: str) -> bool:
        """True if this fence still holds the lease of the message."""
        state, now = run_blocking(lambda: self.client.hmget(keys.message(message_id), "state", "fence"))
        return state == b"leased" and now == fence.encode()

    def read(self, message_id: str, fence: str, names: Sequence[str]) -> Read | None:
        """The lane keys of a message and the values of the keys `names`. None if the lease is lost."""
        pipe = self.client.pipeline(transaction=False)
        for command in read_commands(message_id, names):
            pipe.execute_command(*command)
        return read_answer(pipe.execute(), fence)

    def pending(self, *groups: str) -> int:
        """The backlog of these groups of queues (keys.py): the number of messages that are not buried.

        Without arguments, the backlog of all groups; this scans all keys.
        """
        names = map(keys.pending, groups) if groups else self.client.scan_iter(f"{keys.PENDING}*", count=1000)
        with self.client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.zcard(name)
            return sum(pipe.execute())

    def _run(
        self, name: str, *, group: Iterable[Sequence[Argument]] = (), keys: Sequence[str] = (), **fixed: Argument
    ) -> Any:
        verb = script(name)
        return verb.run(self.client, verb.command(keys, group, **fixed))
