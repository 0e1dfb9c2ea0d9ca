"""Appends that return when they are durable: on disk, and on the required number of replicas.

Guarantees that a returned append is as durable as `durability` shows for the connection that it used: after a reconnect
(a restart, a failover) the server is checked first, and changed settings of a running server are noticed by the first
append or recheck CHECK_EVERY_S later. An append that raised an error may have been done nevertheless: append again, and
messages that were seen are dropped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any, TypeVar

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from celery_lanes.protocol import verbs
from celery_lanes.protocol.client import Store
from celery_lanes.protocol.messages import Guard, NewMessage
from celery_lanes.protocol.scripts import Command, plain
from celery_lanes.protocol.server import Durability, Durable, check_rights, check_server, durability
from celery_lanes.protocol.verbs import Appended
from celery_lanes.words import NEUTRAL, Words

T = TypeVar("T")

log = logging.getLogger(__name__)

#: How long an fsync may take before the batch counts as not appended. `everysec` takes up to 2 s under load.
WAITAOF_MS = 5_000
#: How long the replicas may take.
WAIT_MS = 5_000
#: Maximum age of the last check of the server's settings. With the longest long poll (50 s) an idle poller notices a
#: change within a minute.
CHECK_EVERY_S = 10.0
#: An append may be sent this many times because of reconnects. After that it fails.
_MOST_ATTEMPTS = 3
_UNSTABLE = "the connection to Redis is lost again and again"


class DurableAppends:
    """`replicas`: how many replicas must have a batch too. The client must not retry, and must have no other user."""

    def __init__(self, client: Redis, replicas: int = 0, words: Words = NEUTRAL) -> None:
        """Raises ServerUnfit, and RedisError if the server does not answer."""
        self._client = client
        self.store = Store(client)
        self._replicas = replicas
        self._words = words
        self._must_check = False  # a connection was made to a server that was not checked
        client.connection_pool.connection_kwargs["redis_connect_func"] = self._on_connect
        self.durability: Durability = self._inspect()
        check_rights(self.store)

    def append(self, messages: Iterable[NewMessage], guard: Guard | None = None, hold_ms: int = 0) -> Appended:
        """All or nothing, in one step. Raises RedisError, ServerUnfit, and LeaseLost if the guard has another fence."""
        return self.write(verbs.append(messages, guard, hold_ms))

    def write(self, command: Command[T]) -> T:
        """The result of a command that writes and may be done twice. It is durable then, and so is everything that any
        client has written before it. Raises RedisError and ServerUnfit.
        """
        for _ in range(_MOST_ATTEMPTS):
            self.recheck()
            answer = self._send(command)
            # After a reconnect during the append the server may be less durable: check it and append again.
            if not self._must_check:
                return command.read(answer)
        raise RedisConnectionError(_UNSTABLE)

    def recheck(self) -> None:
        """Checks the server again after a reconnect or if the last check is old, and logs a change.

        Raises ServerUnfit, RedisError.
        """
        self.store.connect()
        if not self._must_check and time.monotonic() - self._checked_at_s < CHECK_EVERY_S:
            return
        now = self._inspect()
        if now != self.durability:
            log.log(logging.INFO if now.safe else logging.WARNING, "the Redis server or its settings changed: %s", now)
        self.durability = now

    def _on_connect(self, connection: Any) -> None:
        """redis-py calls this for each new connection, instead of `on_connect`."""
        self._must_check = True
        connection.on_connect()

    def _inspect(self) -> Durability:
        """Checks on one connection. Starts again after a reconnect, because it may have read from two servers."""
        for _ in range(_MOST_ATTEMPTS):
            self._must_check = False
            try:
                self.store.connect()
                check_server(self._client)
                found = durability(self._client, self._words)
            except BaseException:
                self._must_check = True
                raise
            if not self._must_check:
                self._checked_at_s = time.monotonic()
                return found
        raise RedisConnectionError(_UNSTABLE)

    def _send(self, command: Command[Any]) -> Any:
        """WAITAOF and WAIT refer to writes of their own connection, so they go with the append, which always writes."""
        waits = self._waits()
        try:
            answer, *kept = self.store.run_all(command, *waits, together=True)
        except RedisError:
            self._must_check = True  # the server may restart with other settings
            raise
        for wait, reply in zip(waits, kept, strict=True):
            self._check(wait, reply)
        return answer

    def _waits(self) -> list[Command[Any]]:
        waits: list[Command[Any]] = []
        if self.durability.how is Durable.WAITAOF:
            waits.append(plain("WAITAOF", 1, 0, WAITAOF_MS))
        if self._replicas:
            waits.append(plain("WAIT", self._replicas, WAIT_MS))
        return waits

    def _check(self, wait: Command[Any], reply: Any) -> None:
        if wait.arguments[0] == "WAITAOF" and not reply[0]:
            self._must_check = True
            raise RedisTimeoutError(f"Redis did not write to disk within {WAITAOF_MS / 1000:g} s")
        if wait.arguments[0] == "WAIT" and reply < self._replicas:
            raise RedisTimeoutError(
                f"{reply} of {self._replicas} replicas ({self._words.replicas}) confirmed it within "
                f"{WAIT_MS / 1000:g} s"
            )
