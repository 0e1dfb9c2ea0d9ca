"""Appends that count only when they are durable: on disk, and with as many replicas as asked for.

Promises that what returned is as durable as `durability` says of the very connection that carried it: a server that
was met anew (a restart, a failover) is looked at before anything that it holds counts. Settings that change on a
running server are noticed by the first append or recheck LOOK_EVERY_S later.
Does not promise that what raised was not appended; append it again, and what was seen is dropped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from chatlanes.lanes.protocol.commands import Guard, NewMessage, append_command
from chatlanes.lanes.protocol.pipelined import packed
from chatlanes.lanes.protocol.replies import Appended, append_answer
from chatlanes.lanes.protocol.scripts import Argument, script
from chatlanes.lanes.protocol.server import Durability, Durable, check_server, durability

log = logging.getLogger(__name__)

#: How long an fsync may take before the batch counts as not appended. `everysec` takes up to 2 s under load.
WAITAOF_MS = 5_000
#: How long the replicas may take.
WAIT_MS = 5_000
#: How old the last look at the server's settings may be. With the longest long poll (50 s) an idle poller notices a
#: change within a minute.
LOOK_EVERY_S = 10.0
#: So many servers may be met within one append; more is trouble, and told as such.
_MEETINGS = 3
_UNSTABLE = "the connection is made anew all the time"


class DurableAppends:
    """`replicas`: how many of them must hold a batch too. The client must have no retries and one user."""

    def __init__(self, client: Redis, replicas: int = 0) -> None:
        """Raises ServerUnfit, and RedisError when the server does not answer."""
        self._client = client
        self._replicas = replicas
        self._is_met = False  # a connection was made, to a server that nobody has looked at
        client.connection_pool.connection_kwargs["redis_connect_func"] = self._meet
        self.durability: Durability = self._inspect()

    def append(self, messages: Iterable[NewMessage], guard: Guard | None = None, hold_ms: int = 0) -> Appended:
        """One step, all or nothing. Raises RedisError, ServerUnfit, and LeaseLost for a guard with another fence."""
        command = append_command(messages, guard, hold_ms)
        for _ in range(_MEETINGS):
            self.recheck()
            answer = self._send(command)
            # A server met while this was sent may keep less than the one before: looked at, it gets the batch again.
            if not self._is_met and not isinstance(answer, NoScriptError):
                return append_answer(answer)
            if isinstance(answer, NoScriptError):
                self._client.script_load(script("append").source)
        raise RedisConnectionError(_UNSTABLE)

    def recheck(self) -> None:
        """Look at the server again when it was met anew or the last look is old, and log what changed.

        Raises ServerUnfit, RedisError.
        """
        if not self._is_met and time.monotonic() - self._looked_at_s < LOOK_EVERY_S:
            return
        now = self._inspect()
        if now != self.durability:
            log.log(logging.INFO if now.safe else logging.WARNING, "the server is another one or changed: %s", now)
        self.durability = now

    def _meet(self, connection: Any) -> None:
        """redis-py calls it for each new connection, instead of `on_connect`."""
        self._is_met = True
        connection.on_connect()

    def _inspect(self) -> Durability:
        """All of one connection: a look during which the connection was made anew may be of two servers."""
        for _ in range(_MEETINGS):
            self._is_met = False
            try:
                check_server(self._client)
                found = durability(self._client)
            except BaseException:
                self._is_met = True
                raise
            if not self._is_met:
                self._looked_at_s = time.monotonic()
                return found
        raise RedisConnectionError(_UNSTABLE)

    def _send(self, command: list[Argument]) -> Any:
        """WAITAOF and WAIT count their own connection's writes: they go with the append, which writes also when all
        was seen.
        """
        waits = self._waits()
        try:
            answer, *kept = self._exchange([command, *waits])
            if isinstance(answer, NoScriptError):
                return answer
            for reply in (answer, *kept):
                if isinstance(reply, Exception):
                    raise reply
        except RedisError:
            self._is_met = True  # a server in trouble may come back with other settings
            raise
        for wait, reply in zip(waits, kept, strict=True):
            self._check(wait, reply)
        return answer

    def _exchange(self, commands: list[list[Argument]]) -> list[Any]:
        """The answers; one may be a ResponseError. A pipeline's, for half of the processor: a batch is long."""
        pool: Any = self._client.connection_pool
        connection = pool.get_connection()
        try:
            connection.send_packed_command([b"".join([packed(command) for command in commands])])
            return [_answer(connection) for _ in commands]
        except BaseException:  # whatever is still to be read must be nobody's
            connection.disconnect()
            raise
        finally:
            pool.release(connection)

    def _waits(self) -> list[list[Argument]]:
        waits: list[list[Argument]] = []
        if self.durability.how is Durable.WAITAOF:
            waits.append(["WAITAOF", 1, 0, WAITAOF_MS])
        if self._replicas:
            waits.append(["WAIT", self._replicas, WAIT_MS])
        return waits

    def _check(self, wait: list[Argument], reply: Any) -> None:
        if wait[0] == "WAITAOF" and not reply[0]:
            self._is_met = True
            raise RedisTimeoutError(f"Redis did not write to disk within {WAITAOF_MS / 1000:g} s")
        if wait[0] == "WAIT" and reply < self._replicas:
            raise RedisTimeoutError(
                f"{reply} of {self._replicas} replicas (DURABLE_REPLICAS) had the batch within {WAIT_MS / 1000:g} s"
            )


def _answer(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error
