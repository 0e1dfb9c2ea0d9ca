"""The lanes in Redis: one method for each script, typed outcomes.

Promises that each method is one atomic step, and that a step with an old fence changes nothing and says LOST.
Does not retry: a step whose answer was lost may have happened, and the caller knows whether it may run twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from redis import Redis

from chatlanes.lanes.protocol import keys
from chatlanes.lanes.protocol.commands import (
    MAX_DEATHS,
    Guard,
    NewMessage,
    Write,
    append_command,
    begin_command,
    commit_command,
    end_command,
    fetch_command,
    problem_json,
    read_commands,
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
    Swept,
    append_answer,
    begin_answer,
    fetch_answer,
    history_answer,
    loss_answer,
    read_answer,
    texts,
)
from chatlanes.lanes.protocol.scripts import Argument, script
from chatlanes.lanes.runtime.blocking import run_blocking

#: A script that looks at more in one step would hold up everybody else's.
SWEEP_LIMIT = 500
REPAIR_LIMIT = 200
PURGE_LIMIT = 500


#: What can be paused: the messages of a lane key, of a queue, of a group of queues.
Pausable = Literal["lane", "queue", "group"]


class Store:
    """The verbs. The client must not decode responses and must not retry (connect.py makes such clients)."""

    def __init__(self, client: Redis) -> None:
        self.client = client

    def append(self, messages: Iterable[NewMessage], guard: Guard | None = None, hold_ms: int = 0) -> Appended:
        """Append a whole batch, all or nothing. With `hold_ms` they line up in the order of their numbers, and one
        whose predecessor has not been seen waits for it so long at most.

        Raises LeaseLost when the guard has another fence by now, and ValueError for a lane key with control characters.
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
        times: Mapping[str, int] | None = None,
    ) -> Fetched:
        """Settle (id, fence) pairs and lease up to `room` ready messages, in one step; those of the `first` queues
        before the others. `times` is added to what Redis counts (timings.py).
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
            times=times,
        )
        return fetch_answer(script("turn").run(self.client, command))

    def renew(self, leases: Iterable[tuple[str, str]], lease_ms: int) -> list[str]:
        """Extend leases; returns the ids whose lease was lost."""
        return texts(self._run("renew", group=leases, lease_ms=lease_ms))

    def release(self, leases: Iterable[tuple[str, str]], *, died: bool = False) -> list[str]:
        """Give messages back untouched; returns the ids that were lost."""
        return texts(self._run("release", group=[(id_, fence, int(died)) for id_, fence in leases]))

    def retry(self, message_id: str, fence: str, *, delay_ms: int, problem: dict[str, Any]) -> Outcome:
        """Give a message back after a failure; its lanes wait until it is due."""
        return Outcome(self._run("retry", id=message_id, fence=fence, delay_ms=delay_ms, problem=problem_json(problem)))

    def park(self, message_id: str, fence: str, *, delay_ms: int, kind: str = "", reason: str = "") -> Outcome:
        """Put a message off that has not failed; its lanes wait until it is due. It is counted by `kind`, a word."""
        return Outcome(self._run("park", id=message_id, fence=fence, delay_ms=delay_ms, kind=kind, reason=reason))

    def bury(self, message_id: str, fence: str, problem: dict[str, Any]) -> Outcome:
        """Move a message to the dead letters; its lanes go on."""
        return Outcome(self._run("bury", id=message_id, fence=fence, problem=problem_json(problem)))

    def commit(self, message_id: str, fence: str, writes: Iterable[Write] = (), *, skipped: bool = False) -> Outcome:
        """Write, in this order, and settle, in one step. `skipped`: it was not run; counted as that too."""
        command = commit_command(message_id, fence, writes, skipped=skipped)
        return Outcome(script("commit").run(self.client, command))

    def begin(self, message_id: str, fence: str, *, lease_ms: int, position: str, what: str) -> Begun:
        """Note that a call is about to be made, or find what became of it in an earlier run. Extends the lease."""
        command = begin_command(message_id, fence, lease_ms=lease_ms, position=position, what=what)
        return begin_answer(script("begin").run(self.client, command))

    def end(
        self, message_id: str, fence: str, *, position: str, what: str, kind: Kind, outcome: bytes = b""
    ) -> Outcome:
        """Note what became of a call that was begun."""
        command = end_command(message_id, fence, position=position, what=what, kind=kind, outcome=outcome)
        return Outcome(script("end").run(self.client, command))

    def replay(self, message_id: str) -> bool:
        """Put a buried message at the end of its lanes; False when no such message is buried."""
        return bool(self._run("replay", id=message_id))

    def drop(self, message_id: str) -> bool:
        """Throw a buried message away; False when no such message is buried."""
        return bool(self._run("drop", id=message_id))

    def pause(self, what: Pausable, name: str) -> bool:
        """Hand out nothing more of it; what runs goes on, what comes waits. False: it was paused already."""
        return bool(self._run("pause", what=what, named=name))

    def resume(self, what: Pausable, name: str, queues: Sequence[str] = ()) -> bool:
        """Hand it out again. `queues`: whose workers are to hear of it. False: it was not paused."""
        return bool(self._run("resume", keys=queues, what=what, named=name))

    def purge(self, queue: str) -> int:
        """Bury what is ready in a queue, and what becomes ready by that; returns how many were buried."""
        problem = problem_json({"type": "Purged", "message": f"queue {queue} was purged"})
        total = 0
        while buried := int(self._run("purge", keys=[queue], limit=PURGE_LIMIT, problem=problem)):
            total += buried
        return total

    def sweep(self, lease_ms: int, holder: str = "", slots: int = 0) -> Swept:
        """Take back expired leases and make due retries ready: at most SWEEP_LIMIT of each.

        `holder` is a worker that is alive, with so many slots: for people to look at.
        """
        expired, due, next_ms, history = self._run(
            "sweep", lease_ms=lease_ms, limit=SWEEP_LIMIT, holder=holder, slots=slots
        )
        return Swept(expired, due, None if next_ms < 0 else next_ms, history_answer(history))

    def look(self) -> History:
        """Which database this is, and how far it has come."""
        return history_answer(self._run("look"))

    def lose(self, known: History, found: History) -> tuple[str, Loss]:
        """Record that `found` is another database than `known`, or an older state of it.

        Returns the identity that it has now, and the loss.
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
        """Mark every loss as seen by a person; returns those that were not."""
        return [loss_answer(record) for record in self._run("acknowledge")]

    def repair(self, cursor: str, lease_ms: int) -> tuple[str, int]:
        """Mend a few messages' keys; returns the next cursor ("0" after a whole round) and how many were mended."""
        following, mended = self._run("repair", cursor=cursor, limit=REPAIR_LIMIT, lease_ms=lease_ms)
        return following.decode(), mended

    def reconcile(self, holder: str, held: Iterable[str]) -> int:
        """Release what is leased to `holder` but not among `held`; returns how many that were."""
        return int(self._run("reconcile", group=[(id_,) for id_ in held], holder=holder))

    def holds(self, message_id: str, fence: str) -> bool:
        """Whether this fence still holds the message."""
        state, now = run_blocking(lambda: self.client.hmget(keys.message(message_id), "state", "fence"))
        return state == b"leased" and now == fence.encode()

    def read(self, message_id: str, fence: str, names: Sequence[str]) -> Read | None:
        """What a message's holder must know to write: its lane keys, and what `names` hold. None: the lease is over."""
        pipe = self.client.pipeline(transaction=False)
        for command in read_commands(message_id, names):
            pipe.execute_command(*command)
        return read_answer(pipe.execute(), fence)

    def pending(self, *groups: str) -> int:
        """The backlog of these groups of queues (keys.py): every message that is not buried.

        Without any it is that of all groups there are, which costs a walk through all keys.
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
