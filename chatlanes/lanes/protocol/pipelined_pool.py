"""The pipelined connections of a process. Answers to unawaited commands are read with the next command.

Guarantees that each caller gets its own answers, and that an unawaited command whose answer was an error or never
arrived is marked (`UnawaitedCommand.fate`). Any thread, greenlet or forked child may use the pool: a connection has one
user at a time. Does not guarantee an order between commands on two connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError

from chatlanes.lanes.protocol.pipelined import Fate, PipelinedCommand, PipelinedConnection, UnawaitedCommand
from chatlanes.lanes.protocol.scripts import Script
from chatlanes.lanes.runtime.blocking import run_blocking

#: Most idle connections. More may be in use: a thousand greenlets may send at the same time, but seldom do.
MOST_KEPT = 64


class PipelinedPool:
    """All pipelined connections of one process to the server of a client (connect.py makes such clients)."""

    def __init__(self, client: Redis, *scripts: Script) -> None:
        """`scripts` are loaded on each new connection, because an unawaited command is not repeated."""
        self._client = client
        self._scripts = scripts
        # The connection used last is taken first, so that few are in use. pop and append are atomic, also for threads.
        # A lock could be held by another thread at a fork.
        self._free: deque[PipelinedConnection] = deque()

    def ask(self, *asked: PipelinedCommand) -> list[Any]:
        """The answers, from one round trip. An answer may be a ResponseError. Raises RedisError without an answer.

        If the connection breaks, all commands are sent once more: sending them twice must do no harm.
        """
        return run_blocking(lambda: self._ask_twice(asked))

    def run(self, *asked: PipelinedCommand) -> list[Any]:
        """Like `ask`, but raises an error answer."""
        answers = self.ask(*asked)
        for answer in answers:
            if isinstance(answer, RedisError):
                raise answer
        return answers

    def send_unawaited(self, asked: PipelinedCommand) -> UnawaitedCommand:
        """Sends a command without waiting. Raises no RedisError: a command that could not be sent is UNKNOWN."""
        unawaited = UnawaitedCommand(asked)
        run_blocking(lambda: self._send_unawaited(unawaited))
        return unawaited

    def close(self) -> None:
        """Closes the idle connections. The next command opens a new one."""
        with suppress(IndexError):
            while True:
                self._free.pop().close()

    def _send_unawaited(self, unawaited: UnawaitedCommand) -> None:
        try:
            connection = self._take()
            connection.send_unawaited(unawaited)
        except RedisError:
            unawaited.fate = Fate.UNKNOWN
        else:
            self._free.append(connection)

    def _ask_twice(self, asked: Sequence[PipelinedCommand]) -> list[Any]:
        try:
            return self._ask(asked)
        except (RedisConnectionError, ReadOnlyError):
            # The server restarted and closed the connection, or it is a replica now.
            self.close()
            return self._ask(asked)

    def _ask(self, asked: Sequence[PipelinedCommand]) -> list[Any]:
        connection = self._take()
        answers = connection.ask(asked)  # after an error the connection is closed and not used again
        for at, answer in enumerate(answers):
            if isinstance(answer, NoScriptError) and (script := asked[at].script):
                connection.load([script])
                [answers[at]] = connection.ask([asked[at]])
        for answer in answers:
            if isinstance(answer, ReadOnlyError):
                connection.close()
                raise answer
        if len(self._free) < MOST_KEPT:
            self._free.append(connection)
        else:
            connection.close()
        return answers

    def _take(self) -> PipelinedConnection:
        try:
            return self._free.pop()
        except IndexError:
            return PipelinedConnection(self._client, self._scripts)


__all__ = ["Fate", "PipelinedCommand", "PipelinedPool", "UnawaitedCommand"]
