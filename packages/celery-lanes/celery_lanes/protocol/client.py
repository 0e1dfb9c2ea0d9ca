"""The client of the lanes in Redis: the only caller of the scripts, with one method for each verb.

Guarantees that each caller gets its own answers, that a script which Redis does not have is loaded (nothing has run
then), and that an unawaited command whose answer was an error or never arrived is marked (`UnawaitedCommand.fate`). Any
thread, greenlet or forked child may use a store: a connection has one user at a time.

Does not retry: a step whose answer was lost may have been done, and only the caller knows whether it may run twice.
Does not guarantee an order between commands on two connections.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError

from celery_lanes.protocol import admin_verbs, keys, timer_verbs, verbs
from celery_lanes.protocol.connection import Fate, PipelinedConnection, UnawaitedCommand
from celery_lanes.protocol.messages import Write
from celery_lanes.protocol.scripts import Command, Script
from celery_lanes.protocol.timer_verbs import StoredTimer
from celery_lanes.protocol.verbs import Begun, Noted, Outcome, Read
from celery_lanes.runtime.threads import run_blocking

P = ParamSpec("P")
T = TypeVar("T")

#: Most idle connections. More may be in use: a thousand greenlets may send at the same time, but seldom do.
MOST_KEPT = 64
OWNERS_AT_ONCE = 100


def _method(verb: Callable[P, Command[T]]) -> Callable[Concatenate[Store, P], T]:
    @wraps(verb)
    def method(self: Store, /, *arguments: P.args, **options: P.kwargs) -> T:
        return self.run(verb(*arguments, **options))

    return method


def _once(step: Callable[[], T]) -> T:
    return step()


class Store:
    """The client must not decode responses and must not retry (connection.py makes such clients)."""

    def __init__(self, client: Redis) -> None:
        self.client = client
        # The connection used last is taken first, so that few are in use. pop and append are atomic, also for threads.
        # A lock could be held by another thread at a fork.
        self._idle: deque[PipelinedConnection] = deque()
        self._pid = os.getpid()

    append = _method(verbs.append)
    turn = _method(verbs.turn)
    renew = _method(verbs.renew)
    release = _method(verbs.release)
    reconcile = _method(verbs.reconcile)
    holds = _method(verbs.holds)
    times_interrupted = _method(verbs.times_interrupted)
    sweep = _method(verbs.sweep)
    repair = _method(verbs.repair)
    retry = _method(verbs.retry)
    park = _method(verbs.park)
    bury = _method(verbs.bury)
    end = _method(verbs.end)
    shield = _method(verbs.shield)
    close_group = _method(verbs.close_group)
    take = _method(verbs.take)
    leave = _method(verbs.leave)
    gather = _method(verbs.gather)
    previous_calls = _method(verbs.previous_calls)
    schedule = _method(timer_verbs.schedule)
    cancel = _method(timer_verbs.cancel)
    advance = _method(timer_verbs.advance)
    adopt = _method(admin_verbs.adopt)
    move_out = _method(admin_verbs.move_out)
    replay = _method(admin_verbs.replay)
    drop = _method(admin_verbs.drop)
    pause = _method(admin_verbs.pause)
    resume = _method(admin_verbs.resume)
    rights = _method(admin_verbs.rights)
    look = _method(admin_verbs.look)
    lose = _method(admin_verbs.lose)
    acknowledge_losses = _method(admin_verbs.acknowledge_losses)

    # -- verbs of several steps

    def commit(
        self,
        message_id: str,
        fence: str,
        writes: Iterable[Write] = (),
        *,
        skipped: bool = False,
        step: Callable[[Callable[[], Any]], Any] = _once,
        decided: Callable[[], None] = lambda: None,
    ) -> Outcome:
        """Does the writes, in this order, and settles: all or nothing. `skipped`: also counts it as not run.

        `step` runs each step, and may run it again. `decided` is called when the commit is decided; the last writes of
        a large one follow.
        """
        commands = verbs.commit(message_id, fence, writes, skipped=skipped)
        code = step(lambda: self.run_all(*commands, together=True))[-1]
        decided()
        finish = verbs.finish(message_id)
        while code == verbs.UNFINISHED and step(lambda: self.run(finish)):
            pass
        return Outcome(min(code, 1))

    def begin(
        self,
        message_id: str,
        fence: str,
        *,
        lease_ms: int,
        position: str,
        what: str,
        send: Callable[[Command[Any]], Any] | None = None,
    ) -> Begun:
        """Records that a call is about to be made, or returns its outcome in an earlier run. Extends the lease.

        `send` sends a command and returns its result; without it, the store does.
        """
        cursor, was = "0", b""
        while True:
            command = verbs.begin(message_id, fence, lease_ms=lease_ms, position=position, what=what, cursor=cursor)
            found = (send or self.run)(command)
            if isinstance(found, Begun):
                return Begun(found.noted, was) if was and found.noted is not Noted.BEGUN else found
            cursor, was = found.cursor, was or found.was

    def read(self, message_id: str, fence: str, names: Sequence[str]) -> Read | None:
        """The lane keys of a message and the values of the keys `names`. None if the lease is lost."""
        return verbs.read_values(self.run_all(*verbs.read(message_id, names)), fence)

    def purge(self, queue: str) -> int:
        """Buries the ready messages of a queue, and those that become ready by that; returns how many were buried."""
        total = 0
        while buried := self.run(admin_verbs.purge(queue)):
            total += buried
        return total

    # -- timers and totals

    def timers(self, *owners: str) -> list[StoredTimer]:
        """The timers of these owners, the next one first. They are read in several steps."""
        found = dict[tuple[str, str], StoredTimer]()
        left = [(owner, "0") for owner in owners]
        while left:
            some, left = left[:OWNERS_AT_ONCE], left[OWNERS_AT_ONCE:]
            again, timers = self.run(timer_verbs.timers_of(some))
            found.update({(timer.owner, timer.name): timer for timer in timers})
            left += again
        return sorted(found.values(), key=lambda timer: timer.at_ms)

    def timer_owners(self, prefix: str) -> list[str]:
        """The owners of timers that begin with `prefix`, sorted. Scans all timers, in small steps."""
        pattern = keys.literal(prefix) + "*"
        found: Any = run_blocking(lambda: list(self.client.zscan_iter(keys.TIMERS, pattern, count=1000)))
        return sorted({timer.decode().partition("\n")[0] for timer, _ in found})

    def next_timers(self, start: int = 0, count: int = 100) -> list[StoredTimer]:
        """Of all timers the next ones, without the first `start`."""
        entries: list[Any] = self.client.zrange(keys.TIMERS, start, start + count - 1)
        places = [tuple(entry.decode().split("\n")) for entry in entries if b"\n" in entry]
        found = {(timer.owner, timer.name): timer for timer in self.timers(*{owner for owner, _ in places})}
        return [found[place] for place in places if place in found]

    def schedules(self) -> tuple[int, dict[tuple[str, str], bytes]]:
        """Redis' time in ms, and the record of each schedule, by its owner and name."""
        with self.client.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.hgetall(keys.SCHEDULES)
            (seconds, microseconds), found = run_blocking(pipe.execute)
        records = {tuple(field.decode().split("\n")): record for field, record in found.items()}
        return seconds * 1000 + microseconds // 1000, records

    def pending(self, *groups: str) -> int:
        """The backlog of these groups of queues (keys.py): the number of messages that are not buried.

        Without arguments, the backlog of all groups; this scans all keys.
        """
        names = map(keys.pending, groups) if groups else self.client.scan_iter(f"{keys.PENDING}*", count=1000)
        with self.client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.zcard(name)
            return sum(pipe.execute())

    # -- commands

    def run(self, command: Command[T]) -> T:
        """The result of a command. Raises RedisError."""
        return command.read(self.run_all(command)[0])

    def run_all(self, *commands: Command[Any], together: bool = False) -> list[Any]:
        """Like `ask`, but raises an error answer."""
        answers = self.ask(*commands, together=together)
        for answer in answers:
            if isinstance(answer, RedisError):
                raise answer
        return answers

    def ask(self, *commands: Command[Any], together: bool = False) -> list[Any]:
        """The answers, from one round trip. An answer may be a ResponseError. Raises RedisError without an answer.

        A command whose script Redis did not have is sent again; with `together`, all commands are.
        """
        return run_blocking(lambda: self._ask_master(commands, together))

    def send_unawaited(self, command: Command[Any]) -> UnawaitedCommand:
        """Sends a command without waiting. Raises no RedisError: a command that could not be sent is UNKNOWN."""
        unawaited = UnawaitedCommand(command)
        run_blocking(lambda: self._send_unawaited(unawaited))
        return unawaited

    def load(self, script: Script) -> None:
        """For a caller with connections of its own, whose command was refused because Redis did not have its script."""
        run_blocking(lambda: self.client.script_load(script.source))

    def connect(self) -> None:
        """Makes sure that there is an open connection. Raises RedisError."""
        self._idle.append(self._take())

    def close(self) -> None:
        """Closes the idle connections. The next command opens a new one."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _ask_master(self, commands: Sequence[Command[Any]], together: bool) -> list[Any]:
        try:
            return self._ask(commands, together)
        except ReadOnlyError:
            # The server has become a replica, so nothing was done: with Sentinel there is a new master.
            return self._ask(commands, together)

    def _ask(self, commands: Sequence[Command[Any]], together: bool) -> list[Any]:
        connection = self._take()
        try:
            answers = connection.ask(commands)  # after an error the connection is closed and not used again
            missing = [at for at, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
            if scripts := [script for at in missing if (script := commands[at].script)]:
                connection.load(scripts)
                again = range(len(commands)) if together else missing
                for at, answer in zip(again, connection.ask([commands[at] for at in again]), strict=True):
                    answers[at] = answer
        except RedisConnectionError:  # the server has restarted: the others are broken too
            self.close()
            raise
        for answer in answers:
            if isinstance(answer, ReadOnlyError):
                connection.close()
                self.close()
                raise answer
        if len(self._idle) < MOST_KEPT:
            self._idle.append(connection)
        else:
            connection.close()
        return answers

    def _send_unawaited(self, unawaited: UnawaitedCommand) -> None:
        try:
            connection = self._take()
            connection.send_unawaited(unawaited)
        except RedisError:
            unawaited.fate = Fate.UNKNOWN
        else:
            self._idle.append(connection)

    def _take(self) -> PipelinedConnection:
        if self._pid != (pid := os.getpid()):  # a forked child must not share its parent's sockets
            self._pid, self._idle = pid, deque()
        with suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if connection.is_open:
                    return connection
                connection.close()
        return PipelinedConnection(self.client)
