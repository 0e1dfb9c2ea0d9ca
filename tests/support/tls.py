"""A server with TLS, and the certificate authority that it has its certificate from. Fixtures, to be imported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from celery_lanes.embedded_server import Server, start_server
from tests.conftest import DEBIAN_REDIS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, Path]:
    """The certificate authority of the server, and the file with its certificate."""
    return make_authority(tmp_path_factory.mktemp("ca"))


def make_authority(directory: Path) -> tuple[trustme.CA, Path]:
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
