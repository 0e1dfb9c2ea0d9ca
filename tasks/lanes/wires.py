"""Connections of a process on which some commands are not waited for: their answers are read with the next command.

Promises that whoever asks gets its own answers, that a command whose answer was an error or never came is known to its
sender (`Told.is_certain`), and that any thread, greenlet or forked child may ask and tell: a wire has one user at a
time, and a child has wires of its own. Does not promise that what was told on two wires happens in that order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError

from tasks.lanes.scripts import Argument, Script

#: Answers left unread on one wire; more are read before it is used again. Each is a few bytes.
MOST_UNREAD = 64
#: Connections kept, not allowed: a thousand greenlets may ask at the same moment, and seldom do.
MOST_KEPT = 64


@dataclass(frozen=True, slots=True)
class Asked:
    """A command of a script, made by `script.command`."""

    script: Script
    command: list[Argument]


class Fate(Enum):
    """What is known of a command that nobody waited for."""

    UNDER_WAY = 1
    DONE = 2  # Redis has answered
    UNKNOWN = 3  # it may or may not have happened


@dataclass(slots=True, eq=False)
class Told:
    """A command that was sent and not waited for. It must be harmless to send it again."""

    asked: Asked
    fate: Fate = Fate.UNDER_WAY


class Wires:
    """All wires of one process to the server of a client (connect.py makes such clients)."""

    def __init__(self, client: Redis, *scripts: Script) -> None:
        """`scripts` are loaded on each new connection: what is told is not told again when they are missing."""
        self._client = client
        self._scripts = scripts
        # The one used last is taken first, so that few are used. Taking and putting back are atomic, also for threads:
        # a lock could be held by another thread at a fork.
        self._free: deque[_Wire] = deque()

    def ask(self, *asked: Asked) -> list[Any]:
        """The answers, from one round trip. An answer may be a ResponseError; raises RedisError when there is none.

        A connection that broke is made anew once: all that is asked must be harmless to ask twice.
        """
        try:
            return self._ask(asked)
        except (RedisConnectionError, ReadOnlyError):
            # Closed by a server that has restarted, or by one that is a replica now.
            self.close()
            return self._ask(asked)

    def tell(self, asked: Asked) -> Told:
        """Send, and do not wait. Raises nothing of Redis: what could not be sent is UNKNOWN."""
        told = Told(asked)
        try:
            wire = self._take()
            wire.tell(told)
        except RedisError:
            told.fate = Fate.UNKNOWN
        else:
            self._free.append(wire)
        return told

    def close(self) -> None:
        """Close what nobody uses now. The next command opens new ones."""
        with suppress(IndexError):
            while True:
                self._free.pop().close()

    def _ask(self, asked: Sequence[Asked]) -> list[Any]:
        wire = self._take()
        answers = wire.ask(asked)  # whatever it raises, the wire is closed and never used again
        missing = [at for at, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        for at in missing:
            wire.load([asked[at].script])
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

    def _take(self) -> _Wire:
        try:
            return self._free.pop()
        except IndexError:
            return _Wire(self._client, self._scripts)


class _Wire:
    """One connection. Whatever is raised while it is used closes it: an answer may be half read."""

    def __init__(self, client: Redis, scripts: Iterable[Script]) -> None:
        self._connection: Any = client.connection_pool.make_connection()
        self._unread: deque[Told] = deque()
        self._connection.connect()
        self.load(scripts)

    def ask(self, asked: Sequence[Asked]) -> list[Any]:
        try:
            self._read_unread()
            self._connection.send_packed_command(self._connection.pack_commands(each.command for each in asked))
            return [self._answer() for _ in asked]
        except BaseException:
            self.close()
            raise

    def tell(self, told: Told) -> None:
        try:
            if len(self._unread) >= MOST_UNREAD:
                self._read_unread()
            self._unread.append(told)
            self._connection.send_packed_command(self._connection.pack_command(*told.asked.command))
        except BaseException:
            self.close()
            raise

    def load(self, scripts: Iterable[Script]) -> None:
        try:
            for script in scripts:
                self._connection.send_command("SCRIPT", "LOAD", script.source)
                self._connection.read_response()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for told in self._unread:
            told.fate = Fate.UNKNOWN
        self._unread.clear()
        self._connection.disconnect()

    def _read_unread(self) -> None:
        while self._unread:
            answer = self._answer()
            self._unread.popleft().fate = Fate.UNKNOWN if isinstance(answer, ResponseError) else Fate.DONE

    def _answer(self) -> Any:
        """An error that is an answer is returned: others are still to be read."""
        try:
            return self._connection.read_response(disconnect_on_error=False)
        except ResponseError as error:
            return error
