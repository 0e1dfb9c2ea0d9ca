"""`rediss://`: certificates are verified, and lanes work as on `redis://`."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import redis
import trustme
from celery import Celery

import celery_lanes as lanes
from celery_lanes.embedded_server import Server
from celery_lanes.protocol import connect_like
from tests.lanes.conftest import POOLS
from tests.support.lab import LabMaker, numbered
from tests.support.tls import authority, make_authority, tls_server

__all__ = ["authority", "tls_server"]


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
    _, other = make_authority(tmp_path)
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
    worker = other.worker("solo", is_awaited=False)
    worker.tells("Hostname mismatch")
    assert lab.state_of("m") == "ready"


def test_a_redis_url_with_broker_use_ssl_is_one_of_tls(tls_server: Server, authority: tuple[trustme.CA, Path]) -> None:
    with Celery("shop", broker=tls_server.url.replace("rediss:", "redis:"), set_as_current=False) as app:
        lanes.install(app)
        app.conf.broker_use_ssl = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": str(authority[1])}
        with connect_like(app.connection_for_write()) as client:
            client.flushall()
        app.send_task("run", headers=lanes.headers(["lane"]), queue="celery.lanes")
        assert app.lanes.store.pending() == 1
