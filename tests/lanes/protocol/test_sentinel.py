"""A Celery connection through a Sentinel that requires a password, to a master with TLS."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import trustme
from kombu import Connection
from redis.exceptions import RedisError

from celery_lanes.embedded_server import HOST, Server, free_port
from celery_lanes.protocol.connection import connect_like
from tests.conftest import DEBIAN_REDIS
from tests.support.tls import authority, tls_server  # noqa: F401
from tests.support.waiting import until

#: The Sentinel itself has no TLS, so it must not find that the master is down.
CONFIG = """
bind {host}
port {port}
dir {directory}
requirepass guarded
sentinel monitor main {host} {master} 1
sentinel down-after-milliseconds main 3600000
"""


def test_the_options_of_kombu_are_used(
    tls_server: Server,  # noqa: F811
    authority: tuple[trustme.CA, Path],  # noqa: F811
    tmp_path: Path,
) -> None:
    config, port = tmp_path / "sentinel.conf", free_port()
    config.write_text(CONFIG.format(host=HOST, port=port, directory=tmp_path, master=tls_server.port))
    connection = Connection(
        f"sentinel://{HOST}:{port}/0",
        ssl={"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": str(authority[1])},
        transport_options={"master_name": "main", "sentinel_kwargs": {"password": "guarded"}},
    )

    def answers() -> bool:
        try:
            with connect_like(connection) as client:
                return bool(client.ping())
        except RedisError as error:
            print(error)
            return False

    with (tmp_path / "log").open("wb") as log:
        sentinel = subprocess.Popen([DEBIAN_REDIS, config, "--sentinel"], stdout=log, stderr=log)
    try:
        until(answers)
    finally:
        sentinel.kill()
        sentinel.wait()
