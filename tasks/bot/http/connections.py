"""The connections of one process to one server.

Promises that one which is used was not closed by the other side a moment ago, and is used again only after an answer
that was read to its end. Does not limit how many there are: it limits those that are kept. urllib3 makes them (TLS,
proxies, addresses); its requests are not used, for they cost more of a processor than all the rest of a call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPException
from typing import Any, NamedTuple, TypeVar

from urllib3 import make_headers
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError
from urllib3.util import parse_url
from urllib3.util.proxy import connection_requires_http_tunnel

from tasks.bot.http.environment import pool_of
from tasks.bot.http.exchange import Incoming, exchange

T = TypeVar("T")

#: Kept, not allowed: a thousand greenlets may call at once, those above it close theirs after the call.
MOST_KEPT = 256


class UnreachedError(Exception):
    """No connection: nothing was sent. `cause` may tell the URL."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(type(cause).__name__)
        self.cause = cause


class Asked(NamedTuple):
    """A request. `look` is taken right before it leaves: what it raises goes up, and nothing was sent. `within_s`: how
    long its answer may pause, where that is its own.
    """

    verb: str
    path: str
    headers: Mapping[str, object]
    body: bytes = b""
    look: Callable[[], object] | None = None
    within_s: float | None = None


class Connections:
    """Threads and greenlets may share them; a forked child may not."""

    def __init__(self, url: str, *, connect_timeout_s: float, read_timeout_s: float, compressed: bool = False) -> None:
        """`compressed`: whether answers may be. Raises UnreachedError for what can lead nowhere."""
        self._stall_s, self._within_s = connect_timeout_s, read_timeout_s
        try:
            parsed = parse_url(url)
            self._pool = pool = pool_of(parsed, connect_timeout_s)
        except (OSError, HTTPError) as error:
            raise UnreachedError(error) from None
        is_proxied = pool.proxy is not None
        self._tunnels = is_proxied and connection_requires_http_tunnel(pool.proxy, pool.proxy_config, parsed.scheme)
        asks_proxy = is_proxied and not self._tunnels  # and wants the whole address
        self._base = (f"{parsed.scheme}://{parsed.netloc}" if asks_proxy else "") + (parsed.path or "").rstrip("/")
        encoding = "gzip" if compressed else "identity"
        headers = {"Host": parsed.netloc, "Accept-Encoding": encoding, **_authorization(parsed.auth)}
        self._always = _lines(headers | dict(pool.proxy_headers if asks_proxy else {}))
        # The one used last is taken first. Taking and putting back are atomic, also for threads.
        self._free: deque[HTTPConnection] = deque()
        self._most_kept = MOST_KEPT

    def ask(self, asked: Asked, take: Callable[[Incoming], T]) -> T:
        """What is taken of the answer. Raises UnreachedError, BrokenError: it may have arrived, and what `look` and
        `take` raise.
        """
        connection = self._taken()
        stays = True
        try:
            if asked.look:
                asked.look()
            stays = False
            head = f"{asked.verb} {self._base}{asked.path} HTTP/1.1\r\n{self._always}{_lines(asked.headers)}\r\n"
            incoming = exchange(
                connection.sock,
                head.encode("latin-1"),
                asked.body,
                stall_s=self._stall_s,
                within_s=asked.within_s or self._within_s,
            )
            with incoming:
                taken = take(incoming)
            stays = incoming.stays
            return taken
        finally:
            # Whatever ended it in between, a time limit for one: the rest of its answer must be nobody's.
            if stays and len(self._free) < self._most_kept:
                self._free.append(connection)
            else:
                connection.close()

    def close(self) -> None:
        """Those that nobody uses now, and the others after their answer."""
        self._most_kept = 0
        with suppress(IndexError):
            while True:
                self._free.pop().close()

    def _taken(self) -> HTTPConnection:
        """One that stands."""
        with suppress(IndexError):
            while True:
                found = self._free.pop()
                if found.is_connected:
                    return found
                found.close()
        try:
            return self._new()
        except (OSError, HTTPError, HTTPException) as error:  # the last one when a proxy talks nonsense
            raise UnreachedError(error) from None

    def _new(self) -> HTTPConnection:
        connection: Any = self._pool._new_conn()
        try:
            if self._tunnels:
                self._pool._prepare_proxy(connection)
            else:
                connection.connect()
        except BaseException:
            connection.close()
            raise
        made: HTTPConnection = connection
        return made


def _authorization(auth: str | None) -> dict[str, str]:
    """Of a name and a password in the URL."""
    return dict(make_headers(basic_auth=auth)) if auth else {}


def _lines(headers: Mapping[str, object]) -> str:
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
