"""`rediss://`: REDIS_CA is the only authority whose certificates the project's own connections accept."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
import trustme

from celery_lanes.embedded_server import Server
from chatlanes.settings import load
from chatlanes.updates.connection import connect_to
from tests.support.tls import authority, make_authority, tls_server

__all__ = ["authority", "tls_server"]


def test_our_own_connections_trust_redis_ca(
    tls_server: Server, authority: tuple[trustme.CA, Path], tmp_path: Path
) -> None:
    with connect_to(load(env={"REDIS_URL": tls_server.url, "REDIS_CA": str(authority[1])}, env_file=None)) as client:
        assert client.ping()
    _, other = make_authority(tmp_path)
    for trusted in ({"REDIS_CA": str(other)}, {}):
        client = connect_to(load(env={"REDIS_URL": tls_server.url, **trusted}, env_file=None))
        with client, pytest.raises(redis.ConnectionError, match="certificate verify failed"):
            client.ping()


def test_a_certificate_of_another_host_is_refused(tls_server: Server, authority: tuple[trustme.CA, Path]) -> None:
    url = tls_server.url.replace("127.0.0.1", "localhost")
    settings = load(env={"REDIS_URL": url, "REDIS_CA": str(authority[1])}, env_file=None)
    with connect_to(settings) as client, pytest.raises(redis.ConnectionError, match="Hostname mismatch"):
        client.ping()
