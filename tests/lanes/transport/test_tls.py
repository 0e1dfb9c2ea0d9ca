"""`rediss://`: certificates are verified, and lanes work as on `redis://`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import trustme

from chatlanes.settings import load
from chatlanes.updates.connection import connect_to
from chatlanes_sandbox.server import Server, start_server
from tests.conftest import DEBIAN_REDIS
from tests.lanes.conftest import POOLS
from tests.support.lab import LabMaker, numbered


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, Path]:
    """The certificate authority of the server, and the file with its certificate."""
    return _authority(tmp_path_factory.mktemp("ca"))


def _authority(directory: Path) -> tuple[trustme.CA, Path]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    return authority, directory / "ca.pem"


@pytest.fixture(scope="module")
def tls_server(authority: tuple[trustme.CA, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not DEBIAN_REDIS.exists():
        pytest.skip("the embedded Valkey has no TLS: apt-get install redis-server")
    directory = tmp_path_factory.mktemp("tls")
    certificate = authority[0].issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(str(directory / "key.pem"))
    for part in certificate.cert_chain_pems:
        part.write_to_path(str(directory / "cert.pem"), append=True)
    tls = ["--tls-cert-file", "cert.pem", "--tls-key-file", "key.pem", "--tls-ca-cert-file", str(authority[1])]
    with start_server(directory, binary=DEBIAN_REDIS, extra=tls) as server:
        yield server


@pytest.mark.parametrize("pool", POOLS)
def test_lanes_keep_their_order_over_tls(
    make_lab: LabMaker, tls_server: Server, authority: tuple[trustme.CA, Path], pool: str
) -> None:
    lab = make_lab(tls_server.url, ca=str(authority[1]))
    lab.client.flushall()
    lab.publish_many(numbered(1000, lambda n: [f"lane:{n % 30}"]))
    lab.publish_unordered("plain", "plain")
    worker = lab.worker(pool, POOLS[pool])
    lab.drained()
    lab.ended("plain")
    worker.stop()
    lab.lanes["plain"] = ()
    lab.check_once_each()
    assert worker.log.count("Connected to rediss://") >= 1


def test_a_certificate_of_an_unknown_authority_is_refused(
    make_lab: LabMaker, tls_server: Server, authority: tuple[trustme.CA, Path], tmp_path: Path
) -> None:
    lab = make_lab(tls_server.url, ca=str(authority[1]))
    lab.client.flushall()
    lab.publish("m", ["lane"])
    _, other = _authority(tmp_path)
    with pytest.raises(redis.ConnectionError, match="certificate verify failed"):
        make_lab(tls_server.url, ca=str(other)).client.ping()
    worker = lab.worker("solo", is_awaited=False, ca=str(other))
    worker.tells("certificate verify failed")
    assert lab.state_of("m") == "ready"


def test_a_certificate_of_another_host_is_refused(
    make_lab: LabMaker, tls_server: Server, authority: tuple[trustme.CA, Path]
) -> None:
    lab = make_lab(tls_server.url, ca=str(authority[1]))
    lab.client.flushall()
    lab.publish("m", ["lane"])
    # Given another name of the server, which its certificate does not have
    url = tls_server.url.replace("127.0.0.1", "localhost")
    other = make_lab(url, ca=str(authority[1]))
    with pytest.raises(redis.ConnectionError, match="Hostname mismatch"):
        other.client.ping()
    settings = load(env={"REDIS_URL": url, "REDIS_CA": str(authority[1])}, env_file=None)
    with connect_to(settings) as client, pytest.raises(redis.ConnectionError, match="Hostname mismatch"):
        client.ping()
    worker = other.worker("solo", is_awaited=False)
    worker.tells("Hostname mismatch")
    assert lab.state_of("m") == "ready"


def test_our_own_connections_trust_redis_ca(
    tls_server: Server, authority: tuple[trustme.CA, Path], tmp_path: Path
) -> None:
    with connect_to(load(env={"REDIS_URL": tls_server.url, "REDIS_CA": str(authority[1])}, env_file=None)) as client:
        assert client.ping()
    _, other = _authority(tmp_path)
    for trusted in ({"REDIS_CA": str(other)}, {}):
        client = connect_to(load(env={"REDIS_URL": tls_server.url, **trusted}, env_file=None))
        with client, pytest.raises(redis.ConnectionError, match="certificate verify failed"):
            client.ping()
