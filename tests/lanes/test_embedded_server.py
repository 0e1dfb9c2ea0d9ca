"""The embedded server keeps what it acknowledged, whatever happens to its process."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import trustme

from celery_lanes.embedded_server import (
    DirectoryTakenError,
    Server,
    ServerFailedError,
    free_port,
    is_free,
    start_server,
)

pytestmark = pytest.mark.slow

DEBIAN_REDIS = Path("/usr/bin/redis-server")
needs_debian_redis = pytest.mark.skipif(not DEBIAN_REDIS.exists(), reason="Debian's redis-server is not installed")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with start_server(tmp_path) as running:
        yield running


def test_it_writes_every_command_to_disk_and_evicts_nothing(server: Server) -> None:
    with redis.Redis.from_url(server.url) as client:
        config = client.config_get("append*", "maxmemory-policy", "save")
    assert (config["appendonly"], config["appendfsync"]) == ("yes", "always")
    assert (config["maxmemory-policy"], config["save"]) == ("noeviction", "")


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_restart_keeps_acknowledged_writes(tmp_path: Path, end: str) -> None:
    first = start_server(tmp_path)
    with redis.Redis.from_url(first.url) as client:
        client.set("kept", "yes")
    getattr(first, end)()
    assert not first.is_running()
    with start_server(tmp_path, port=first.port) as second, redis.Redis.from_url(first.url) as client:
        assert client.get("kept") == b"yes"
        assert second.pid != first.pid


def test_stop_works_twice_and_on_a_frozen_server(server: Server) -> None:
    os.kill(server.pid, signal.SIGSTOP)
    server.stop()
    server.stop()
    assert server.process.returncode == 0


def test_extra_flags_win_over_ours(tmp_path: Path) -> None:
    with (
        start_server(tmp_path, appendfsync="no", extra=["--maxmemory-policy", "allkeys-lru"]) as server,
        redis.Redis.from_url(server.url) as client,
    ):
        config = client.config_get("appendfsync", "maxmemory-policy")
        assert config == {"appendfsync": "no", "maxmemory-policy": "allkeys-lru"}


def test_a_port_in_use_is_reported_from_the_server_log(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ServerFailedError, match=r"ended with code 1: .*in use"):
        start_server(tmp_path / "second", port=server.port)


def test_two_servers_do_not_share_a_directory(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DirectoryTakenError, match=rf"another Redis server \(pid {server.pid}\) is using"):
        start_server(tmp_path)
    with redis.Redis.from_url(server.url) as client:
        assert client.ping()


def test_a_wrong_flag_is_reported_from_the_server_log(tmp_path: Path) -> None:
    with pytest.raises(ServerFailedError, match="no-such-flag"):
        start_server(tmp_path, extra=["--no-such-flag", "1"])


@needs_debian_redis
def test_with_a_certificate_it_speaks_tls_only(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    ca, key, cert = (tmp_path / f"{name}.pem" for name in ("ca", "key", "cert"))
    authority.cert_pem.write_to_path(str(ca))
    certificate.private_key_pem.write_to_path(str(key))
    certificate.cert_chain_pems[0].write_to_path(str(cert))
    flags = ["--tls-cert-file", str(cert), "--tls-key-file", str(key), "--tls-ca-cert-file", str(ca)]
    with (
        start_server(tmp_path / "data", extra=flags, binary=DEBIAN_REDIS) as server,
        redis.Redis.from_url(server.url, ssl_ca_certs=str(ca)) as client,
    ):
        assert server.url.startswith("rediss://")
        assert client.ping()


@needs_debian_redis
def test_another_servers_program_can_be_run(tmp_path: Path) -> None:
    version = subprocess.run([DEBIAN_REDIS, "--version"], capture_output=True, text=True, check=True).stdout
    with (
        start_server(tmp_path, binary=DEBIAN_REDIS) as server,
        redis.Redis.from_url(server.url) as client,
    ):
        assert f"v={client.info('server')['redis_version']} " in version


def test_with_a_password_it_is_ready_too(tmp_path: Path) -> None:
    with (
        start_server(tmp_path, extra=["--requirepass", "hidden"]) as server,
        redis.Redis.from_url(server.url, password="hidden") as client,
    ):
        assert client.ping()


def test_a_wanted_port_is_given_only_when_it_is_free(server: Server) -> None:
    assert not is_free(server.port)
    assert free_port(server.port) != server.port
    server.stop()
    assert free_port(server.port) == server.port
