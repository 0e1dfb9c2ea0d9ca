"""Connections of a process on which some commands are not waited for: their answers are read with the next command.

Promises that whoever asks gets its own answers, that a command whose answer was an error or never came is known to its
sender (`Told.is_certain`), and that any thread, greenlet or forked child may ask and tell: a wire has one user at a
time, and a child has wires of its own. Does not promise that what was told on two wires happens in that order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError

from chatlanes.lanes.protocol.pipelined import Asked, Fate, Told, Wire
from chatlanes.lanes.protocol.scripts import Script
from chatlanes.lanes.runtime.blocking import run_blocking

#: Connections kept, not allowed: a thousand greenlets may ask at the same moment, and seldom do.
MOST_KEPT = 64


class Wires:
    """All wires of one process to the server of a client (connect.py makes such clients)."""

    def __init__(self, client: Redis, *scripts: Script) -> None:
        """`scripts` are loaded on each new connection: what is told is not told again when they are missing."""
        self._client = client
        self._scripts = scripts
        # The one used last is taken first, so that few are used. Taking and putting back are atomic, also for threads:
        # a lock could be held by another thread at a fork.
        self._free: deque[Wire] = deque()

    def ask(self, *asked: Asked) -> list[Any]:
        """The answers, from one round trip. An answer may be a ResponseError; raises RedisError when there is none.

        A connection that broke is made anew once: all that is asked must be harmless to ask twice.
        """
        return run_blocking(lambda: self._ask_twice(asked))

    def run(self, *asked: Asked) -> list[Any]:
        """As `ask`, and raises an answer that is an error."""
        answers = self.ask(*asked)
        for answer in answers:
            if isinstance(answer, RedisError):
                raise answer
        return answers

    def tell(self, asked: Asked) -> Told:
        """Send, and do not wait. Raises nothing of Redis: what could not be sent is UNKNOWN."""
        told = Told(asked)
        run_blocking(lambda: self._tell(told))
        return told

    def close(self) -> None:
        """Close what nobody uses now. The next command opens new ones."""
        with suppress(IndexError):
            while True:
                self._free.pop().close()

    def _tell(self, told: Told) -> None:
        try:
            wire = self._take()
            wire.tell(told)
        except RedisError:
            told.fate = Fate.UNKNOWN
        else:
            self._free.append(wire)

    def _ask_twice(self, asked: Sequence[Asked]) -> list[Any]:
        try:
            return self._ask(asked)
        except (RedisConnectionError, ReadOnlyError):
            # Closed by a server that has restarted, or by one that is a replica now.
            self.close()
            return self._ask(asked)

    def _ask(self, asked: Sequence[Asked]) -> list[Any]:
        wire = self._take()
        answers = wire.ask(asked)  # whatever it raises, the wire is closed and never used again
        for at, answer in enumerate(answers):
            if isinstance(answer, NoScriptError) and (script := asked[at].script):
                wire.load([script])
                [answers[at]] = wire.ask([asked[at]])
        for answer in answers:
            if isinstance(answer, ReadOnlyError):
                wire.close()
                raise answer
        if len(self._free) < MOST_KEPT:
            self._free.append(wire)
        else:
            wire.close()
        return answers

    def _take(self) -> Wire:
        try:
            return self._free.pop()
        except IndexError:
            return Wire(self._client, self._scripts)


__all__ = ["Asked", "Fate", "Told", "Wires"]
