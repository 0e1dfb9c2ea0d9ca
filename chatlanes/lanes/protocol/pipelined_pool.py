"""The pipelined connections of a process: answers to unawaited commands are read with the next command.

Guarantees that each caller gets its own answers, that an unawaited command whose answer was an error or never came is
marked (`UnawaitedCommand.fate`), and that any thread, greenlet or forked child may use the pool: a connection has one
user at a time. Does not guarantee an order between commands that were sent on two connections.
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

#: Idle connections that are kept. More may be open: a thousand greenlets may send at the same moment, and seldom do.
MOST_KEPT = 64


class PipelinedPool:
    """All pipelined connections of one process to the server of a client (connect.py makes such clients)."""

    def __init__(self, client: Redis, *scripts: Script) -> None:
        """`scripts` are loaded on each new connection, because an unawaited command is not repeated."""
        self._client = client
        self._scripts = scripts
        # The one used last is taken first, so that few are used. Taking and putting back are atomic, also for threads:
        # a lock could be held by another thread at a fork.
        self._free: deque[PipelinedConnection] = deque()

    def ask(self, *asked: PipelinedCommand) -> list[Any]:
        """The answers, from one round trip. An answer may be a ResponseError; raises RedisError when there is none.

        After a broken connection all commands are sent once more: sending them twice must be harmless.
        """
        return run_blocking(lambda: self._ask_twice(asked))

    def run(self, *asked: PipelinedCommand) -> list[Any]:
        """As `ask`, but raises an answer that is an error."""
        answers = self.ask(*asked)
        for answer in answers:
            if isinstance(answer, RedisError):
                raise answer
        return answers

    def send_unawaited(self, asked: PipelinedCommand) -> UnawaitedCommand:
        """Send, and do not wait. Raises no RedisError: a command that could not be sent is UNKNOWN."""
        unawaited = UnawaitedCommand(asked)
        run_blocking(lambda: self._send_unawaited(unawaited))
        return unawaited

    def close(self) -> None:
        """Close the idle connections. The next command opens new ones."""
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
            # Closed by a server that has restarted, or by one that is a replica now.
            self.close()
            return self._ask(asked)

    def _ask(self, asked: Sequence[PipelinedCommand]) -> list[Any]:
        connection = self._take()
        answers = connection.ask(asked)  # whatever it raises, the connection is closed and never used again
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
