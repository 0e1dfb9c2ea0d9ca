"""A connection to Redis on which the answers of some commands are not awaited.

Guarantees that answers match their commands, and that any error closes the connection, because an answer may be half
read. redis-py connects (TLS, passwords, Sentinel); then hiredis reads and writes, which takes a fifth of the CPU time.
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

#: Most answers that are left unread. With that many, they are read before the next command. Each is a few bytes.
MOST_UNREAD = 64
READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class PipelinedCommand:
    """A command of a script, made by `script.command`, or a plain Redis command (`script` is None)."""

    script: Script | None
    command: list[Argument]


class Fate(Enum):
    """The state of an unawaited command."""

    UNDER_WAY = 1
    DONE = 2  # Redis answered
    UNKNOWN = 3  # it may or may not have been executed


@dataclass(slots=True, eq=False)
class UnawaitedCommand:
    """A command whose sender does not wait for the answer. Sending it twice must do no harm."""

    asked: PipelinedCommand
    fate: Fate = Fate.UNDER_WAY


class PipelinedConnection:
    """Connects to the server of a client, and loads `scripts`. Raises RedisError."""

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
        """Sends a command and does not wait for the answer."""
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
            raise RedisConnectionError(f"cannot write to Redis: {error}") from error

    def _answer(self) -> Any:
        """Returns an error answer instead of raising it, because other answers are still to be read."""
        while (answer := self._reader.gets()) is False:
            self._reader.feed(self._read())
        if isinstance(answer, RedisConnectionError):  # the server loads its data, or has become a replica
            raise answer
        return answer

    def _read(self) -> bytes:
        try:
            read: bytes = self._socket.recv(READ_BYTES)
        except TimeoutError as error:
            raise RedisTimeoutError("Redis does not answer") from error
        except OSError as error:
            raise RedisConnectionError(f"cannot read from Redis: {error}") from error
        if not read:
            raise RedisConnectionError("Redis closed the connection")
        return read


def packed(command: list[Argument]) -> bytes:
    """The command in the Redis protocol."""
    arguments: Any = tuple(command)  # any length works, unlike the stub says
    return pack_command(arguments)
