"""Clients and connections to Redis, for everything except the channels of kombu.

Guarantees that a client never retries by itself (redis-py 8 retries ten times, and a fetch must not run twice), and
that a command fails after `timeout_s` without an answer. Accepts `redis://`, `rediss://`, `redis+socket://`, `unix://`
and `sentinel://` URLs as Celery does.

On a PipelinedConnection the answers of some commands are not awaited. Guarantees that answers match their commands, and
that any error closes the connection, because an answer may be half read. redis-py connects (TLS, passwords, Sentinel);
then codec.py reads and writes, with hiredis in a fifth of the CPU time.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import Any, cast
from urllib.parse import urlsplit

from redis import Redis
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry
from redis.sentinel import Sentinel

from celery_lanes.protocol.codec import pack_command, reader_of
from celery_lanes.protocol.scripts import Argument, Command, Script

#: Most answers that are left unread. With that many, they are read before the next command. Each is a few bytes.
MOST_UNREAD = 64
READ_BYTES = 1 << 16
DEFAULT_SENTINEL_PORT = 26379
#: redis-py would make one for each connection, which takes as long as to connect: it looks up its own version.
DRIVER_INFO = DriverInfo()


def connect(
    url: str,
    *,
    ssl: Mapping[str, Any] | None = None,
    master: str | None = None,
    sentinel: Mapping[str, Any] | None = None,
    timeout_s: float = 5.0,
    prefix: str = "",
) -> Redis:
    """A client for a URL. `ssl` are redis-py's ssl_* arguments, `master` is the name of the master in Sentinel,
    `sentinel` are redis-py's arguments for connections to Sentinels, such as `password`, and `prefix` precedes all keys
    (prefix.py).

    Sends nothing yet. Raises ValueError for a URL of another kind.
    """
    options: dict[str, Any] = {
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "socket_keepalive": True,
        # The default of redis-py is 100; a thousand greenlets may need a connection at the same time.
        "max_connections": 1 << 20,
        "driver_info": DRIVER_INFO,
    }
    client_class = Redis
    if prefix:
        prefixes = import_module("celery_lanes.protocol.prefix")
        client_class, options["command_packer"] = prefixes.PrefixedRedis, prefixes.Prefix(prefix)
    if url.startswith("sentinel://"):
        of_sentinels = {**options, **(sentinel or {})}
        tls = {} if ssl is None else {"ssl": True, **ssl}
        return _through_sentinel(url, master, of_sentinels, {**options, **tls}, client_class)
    if url.startswith("redis+socket://"):
        # Celery names the database virtual_host, redis-py db.
        url = "unix://" + re.sub("([?&])virtual_host=/?", r"\1db=", url.removeprefix("redis+socket://"))
        del options["socket_keepalive"]
    elif not url.startswith("unix://"):
        if ssl is not None:
            url = re.sub("^redis:", "rediss:", url)
        _database(urlsplit(url).path)  # redis-py would use database 0 instead of one that is not a number
    return client_class.from_url(url, **options, **(ssl or {}))


def connect_like(connection: Any, timeout_s: float = 5.0) -> Redis:
    """A client for the server of a kombu connection."""
    ssl = connection.ssl if isinstance(connection.ssl, Mapping) else None
    urls = [*connection.alt] or [connection.as_uri(include_password=True)]
    if len(urls) > 1 and not urls[0].startswith("sentinel://"):
        raise ValueError("several brokers are not supported: name one server, or use Sentinel")
    options = connection.transport_options
    return connect(
        ";".join(urls),
        ssl=ssl,
        master=options.get("master_name"),
        sentinel=options.get("sentinel_kwargs"),
        timeout_s=timeout_s,
        prefix=options.get("global_keyprefix") or "",
    )


def _through_sentinel(
    url: str, master: str | None, of_sentinels: dict[str, Any], options: dict[str, Any], client_class: type[Redis]
) -> Redis:
    """`of_sentinels`: the arguments of connections to Sentinels; `options`: those of connections to the master."""
    if not master:
        raise ValueError("a sentinel:// URL needs the name of the master that Sentinel watches (master_name)")
    nodes = [urlsplit(part) for part in url.split(";")]
    found = next((node for node in nodes if node.password), nodes[0])
    sentinel = Sentinel(
        [(node.hostname or "127.0.0.1", node.port or DEFAULT_SENTINEL_PORT) for node in nodes],
        sentinel_kwargs=of_sentinels,
        username=found.username or None,
        password=found.password,
        db=_database(nodes[-1].path),
        **options,
    )
    client: Redis = sentinel.master_for(master, redis_class=client_class)
    return client


def _database(path: str) -> int:
    """Raises ValueError."""
    name = path.strip("/")
    if not re.fullmatch("[0-9]*", name):
        raise ValueError(f"{name!r} is not a database of Redis: use a number")
    return int(name or 0)


class Fate(Enum):
    """The state of an unawaited command."""

    UNDER_WAY = 1
    DONE = 2  # Redis answered
    UNKNOWN = 3  # it may or may not have been executed


@dataclass(slots=True, eq=False)
class UnawaitedCommand:
    """A command whose sender does not wait for the answer. Sending it twice must do no harm."""

    asked: Command[Any]
    fate: Fate = Fate.UNDER_WAY


class PipelinedConnection:
    """Connects to the server of a client. Raises RedisError."""

    def __init__(self, client: Redis) -> None:
        self._connection = cast(Any, client.connection_pool.make_connection())
        self._unread: deque[UnawaitedCommand] = deque()
        self._connection.connect()
        self._socket: Any = self._connection._sock
        prefix = client.connection_pool.connection_kwargs.get("command_packer")
        self._packed = prefix.packed if prefix else packed
        self._reader = reader_of(self._connection)
        self._loaded = set[Script]()

    @property
    def is_open(self) -> bool:
        """False if the server has closed it. True while answers are unread."""
        try:
            return bool(self._unread) or not self._connection.can_read(timeout=0)
        except (RedisError, OSError):
            return False

    def ask(self, asked: Sequence[Command[Any]]) -> list[Any]:
        """The answers; one may be a ResponseError."""
        return self._exchange([each.arguments for each in asked])

    def send_unawaited(self, unawaited: UnawaitedCommand) -> None:
        """Sends a command and does not wait for the answer. Its script is loaded before, because it is not repeated."""
        script = unawaited.asked.script
        if script is not None and script not in self._loaded:
            self.load([script])
        try:
            if len(self._unread) >= MOST_UNREAD:
                self._read_unread()
            self._unread.append(unawaited)
            self._send([unawaited.asked.arguments])
        except BaseException:
            self.close()
            raise

    def load(self, scripts: Iterable[Script]) -> None:
        self._loaded.update(missing := [*scripts])
        for answer in self._exchange([["SCRIPT", "LOAD", script.source] for script in missing]):
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
            self._socket.sendall(b"".join([self._packed(command) for command in commands]))
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
            raise RedisTimeoutError("Timeout reading from socket") from error
        except OSError as error:
            raise RedisConnectionError(f"cannot read from Redis: {error}") from error
        if not read:
            raise RedisConnectionError("Redis closed the connection")
        return read


def packed(command: list[Argument]) -> bytes:
    """The command in the Redis protocol."""
    arguments: Any = tuple(command)  # any length works, unlike the stub says
    return pack_command(arguments)
