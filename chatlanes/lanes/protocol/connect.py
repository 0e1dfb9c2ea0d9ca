"""Redis clients for everything except the channels of kombu.

Guarantees that a client never retries by itself (redis-py 8 retries ten times, and a fetch must not run twice), and
that a command fails after `timeout_s` without an answer. Accepts `redis://`, `rediss://`, `unix://` and `sentinel://`
URLs as Celery does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

DEFAULT_SENTINEL_PORT = 26379


class BrokerConnection(Protocol):
    """The attributes of a kombu connection that identify its server."""

    ssl: Any
    alt: Any
    transport_options: Any

    def as_uri(self, include_password: bool = ...) -> str: ...


def connect(
    url: str, *, ssl: Mapping[str, Any] | None = None, master: str | None = None, timeout_s: float = 5.0
) -> Redis:
    """A client for a URL. `ssl` are redis-py's ssl_* arguments, `master` is the name of the master in Sentinel.

    Sends nothing yet. Raises ValueError for a URL of another kind.
    """
    options: dict[str, Any] = {
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "socket_keepalive": True,
        # The default of redis-py is 100; a thousand greenlets may need a connection at the same time.
        "max_connections": 1 << 20,
    }
    if url.startswith("sentinel://"):
        return _through_sentinel(url, master, options)
    if url.startswith("redis+socket://"):
        url = "unix://" + url.removeprefix("redis+socket://")
        del options["socket_keepalive"]
    return Redis.from_url(url, **options, **(ssl or {}))


def connect_like(connection: BrokerConnection, timeout_s: float = 5.0) -> Redis:
    """A client for the server of a kombu connection."""
    ssl = connection.ssl if isinstance(connection.ssl, Mapping) else None
    urls = [*connection.alt] or [connection.as_uri(include_password=True)]
    master = connection.transport_options.get("master_name")
    return connect(";".join(urls), ssl=ssl, master=master, timeout_s=timeout_s)


def _through_sentinel(url: str, master: str | None, options: dict[str, Any]) -> Redis:
    if not master:
        raise ValueError("a sentinel:// URL needs the name of the master that Sentinel watches")
    nodes = [urlsplit(part) for part in url.split(";")]
    path = nodes[-1].path.strip("/")
    found = next((node for node in nodes if node.password), nodes[0])
    sentinel = Sentinel(
        [(node.hostname or "127.0.0.1", node.port or DEFAULT_SENTINEL_PORT) for node in nodes],
        sentinel_kwargs=options,
        username=found.username or None,
        password=found.password,
        db=int(path or 0),
        **options,
    )
    client: Redis = sentinel.master_for(master)
    return client
