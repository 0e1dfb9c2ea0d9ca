"""One connection on which some commands are not awaited.

Guarantees that answers come in the order of their commands, and that any error closes it: an answer may be half read.
redis-py connects (TLS, passwords, Sentinel); after that hiredis reads and writes, which takes a fifth of the CPU time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

from hiredis import Reader, pack_command
from redis import Redis
from redis._parsers.base import BaseParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from chatlanes.lanes.protocol.scripts import Argument, Script

#: Answers left unread; more are read before it is used again. Each is a few bytes.
MOST_UNREAD = 64
READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class PipelinedCommand:
    """A command of a script, made by `script.command`, or one of Redis' own."""

    script: Script | None
    command: list[Argument]


class Fate(Enum):
    """What is known of an unawaited command."""

    UNDER_WAY = 1
    DONE = 2  # Redis has answered
    UNKNOWN = 3  # it may or may not have happened


@dataclass(slots=True, eq=False)
class UnawaitedCommand:
    """A command whose sender does not wait for the answer. Sending it twice must be harmless."""

    asked: PipelinedCommand
    fate: Fate = Fate.UNDER_WAY


class PipelinedConnection:
    """To the server of a client. `scripts` are loaded at once. Raises RedisError."""

    def __init__(self, client: Redis, scripts: Iterable[Script]) -> None:
        self._connection = cast(Any, client.connection_pool.make_connection())
        self._unread: deque[UnawaitedCommand] = deque()
        self._connection.connect()
        self._socket: Any = self._connection._sock
        self._reader = Reader(protocolError=InvalidResponse, replyError=BaseParser.parse_error)
        self.load(scripts)

    def ask(self, asked: Sequence[PipelinedCommand]) -> list[Any]:
        """The answers; one may be a ResponseError."""
        return self._exchange([each.command for each in asked])

    def send_unawaited(self, unawaited: UnawaitedCommand) -> None:
        """Send, and do not wait."""
        try:
            if len(self._unread) >= MOST_UNREAD:
                self._read_unread()
            self._unread.append(unawaited)
            self._send([unawaited.asked.command])
        except BaseException:
            self.close()
            raise

    def load(self, scripts: Iterable[Script]) -> None:
        for answer in self._exchange([["SCRIPT", "LOAD", script.source] for script in scripts]):
            if isinstance(answer, ResponseError):
                self.close()
                raise answer

    def close(self) -> None:
        for unawaited in self._unread:
            unawaited.fate = Fate.UNKNOWN
        self._unread.clear()
        self._connection.disconnect()

    def _exchange(self, commands: Sequence[list[Argument]]) -> list[Any]:
        try:
            self._send(commands)
            self._read_unread()
            return [self._answer() for _ in commands]
        except BaseException:
            self.close()
            raise

    def _read_unread(self) -> None:
        while self._unread:
            answer = self._answer()
            self._unread.popleft().fate = Fate.UNKNOWN if isinstance(answer, ResponseError) else Fate.DONE

    def _send(self, commands: Iterable[list[Argument]]) -> None:
        try:
            self._socket.sendall(b"".join([packed(command) for command in commands]))
        except TimeoutError as error:
            raise RedisTimeoutError("Redis accepts no data") from error
        except OSError as error:
            raise RedisConnectionError(f"Redis cannot be written to: {error}") from error

    def _answer(self) -> Any:
        """An error answer is returned: other answers are still to be read."""
        while (answer := self._reader.gets()) is False:
            self._reader.feed(self._read())
        if isinstance(answer, RedisConnectionError):  # it is loading its data, or not a master any more
            raise answer
        return answer

    def _read(self) -> bytes:
        try:
            read: bytes = self._socket.recv(READ_BYTES)
        except TimeoutError as error:
            raise RedisTimeoutError("Redis does not answer") from error
        except OSError as error:
            raise RedisConnectionError(f"Redis cannot be read from: {error}") from error
        if not read:
            raise RedisConnectionError("Redis has closed the connection")
        return read


def packed(command: list[Argument]) -> bytes:
    """As it goes over the wire."""
    arguments: Any = tuple(command)  # of any length, whatever its stub says
    return pack_command(arguments)
