"""A Redis that replies with errors: workers log it once, wait, and continue by themselves when it works again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import pytest
from redis import Redis

from chatlanes.lanes.protocol.connect import connect
from chatlanes.sandbox.server import Server, start_server
from tests.support.lab import Lab, LabMaker
from tests.support.waiting import WITHIN_S, until


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Server]:
    with start_server(tmp_path / "redis", extra=["--enable-protected-configs", "yes"]) as running:
        yield running


@pytest.fixture
def admin(own_redis: Server) -> Iterator[Redis]:
    """A client that was connected before Redis refuses others."""
    with connect(own_redis.url) as client:
        yield client


def check_recovery(
    lab: Lab,
    pool: tuple[str, int],
    break_it: Callable[[], object],
    fix: Callable[[], object],
    error: str,
    *,
    reconnects: bool = True,
) -> None:
    """Break Redis while a worker runs `a`; the error is logged. Fix it; then every message runs once, in order."""
    worker = lab.worker(*pool)
    lab.publish("a", ["lane"], gate="gate")
    lab.started("a")
    lab.publish_many({f"m{n}": ("lane",) for n in range(20)})
    break_it()
    worker.tells(f"lanes: Redis does not answer the lease renewal: {error}")
    if reconnects and pool[0] != "solo":  # its only thread is busy with the handler
        worker.tells("Cannot connect to redis://")
    # The running message keeps its lease, and is settled when that is possible
    lab.open("gate")
    lab.ended("a")
    fix()
    lab.drained()
    lab.check_once_each()
    # The worker logged the error once, and neither exited nor restarted repeatedly
    assert "Unrecoverable" not in worker.log
    assert "Frequent restarts" not in worker.log
    assert "CPendingDeprecationWarning" not in worker.log
    assert worker.log.count("lanes: Redis does not answer the lease renewal") == 1
    worker.stop()


def test_a_server_that_becomes_a_replica(
    make_lab: LabMaker, own_redis: Server, admin: Redis, pool: tuple[str, int]
) -> None:
    lab = make_lab(own_redis.url)
    check_recovery(
        lab,
        pool,
        lambda: admin.replicaof("127.0.0.1", 1),
        lambda: admin.replicaof("NO", "ONE"),
        "You can't write against a read only replica",
    )


def test_a_master_without_enough_replicas(make_lab: LabMaker, own_redis: Server, admin: Redis) -> None:
    check_recovery(
        make_lab(own_redis.url),
        ("threads", 8),
        lambda: admin.config_set("min-replicas-to-write", 1),
        lambda: admin.config_set("min-replicas-to-write", 0),
        "NOREPLICAS",
    )


def test_a_server_that_cannot_write_to_its_disk(
    make_lab: LabMaker, own_redis: Server, admin: Redis, tmp_path: Path
) -> None:
    def break_disk() -> None:
        admin.config_set("save", "3600 1")
        admin.config_set("dir", "/proc")
        admin.bgsave()

    def fix_disk() -> None:
        admin.config_set("dir", str(tmp_path / "redis"))
        admin.bgsave()

    check_recovery(make_lab(own_redis.url), ("prefork", 2), break_disk, fix_disk, "MISCONF")


def test_a_server_that_is_busy_with_a_script(make_lab: LabMaker, own_redis: Server, admin: Redis) -> None:
    admin.config_set("busy-reply-threshold", 50)
    with connect(own_redis.url, timeout_s=WITHIN_S) as busy, ThreadPoolExecutor() as threads:
        check_recovery(
            make_lab(own_redis.url),
            ("threads", 8),
            lambda: threads.submit(busy.eval, "while true do end", 0),
            lambda: admin.script_kill(),
            "BUSY",
            reconnects=False,
        )


@pytest.mark.parametrize("pool", [("prefork", 2), ("solo", 1)])
def test_a_server_that_is_frozen_for_longer_than_a_lease(
    make_lab: LabMaker, own_redis: Server, pool: tuple[str, int]
) -> None:
    # The worker cannot renew its lease meanwhile, but it does not lose the message
    frozen_at_s = 0.0

    def freeze() -> None:
        nonlocal frozen_at_s
        os.kill(own_redis.pid, signal.SIGSTOP)
        frozen_at_s = monotonic()

    def thaw() -> None:
        until(lambda: monotonic() > frozen_at_s + 7)
        os.kill(own_redis.pid, signal.SIGCONT)

    lab = make_lab(own_redis.url, options={"lease_seconds": 6})
    check_recovery(lab, pool, freeze, thaw, "Timeout", reconnects=False)
    assert lab.count("expired") == 0


@pytest.mark.parametrize("pool", [("prefork", 2), ("gevent", 50)])
def test_a_server_with_another_password(
    make_lab: LabMaker, own_redis: Server, admin: Redis, pool: tuple[str, int]
) -> None:
    lab = make_lab(own_redis.url)

    def lock_out() -> None:
        admin.config_set("requirepass", "secret")
        admin.execute_command("AUTH", "secret")
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    check_recovery(lab, pool, lock_out, lambda: admin.config_set("requirepass", ""), "")


@pytest.mark.parametrize("pool", [("threads", 8), ("solo", 1)])
def test_workers_run_the_messages_of_a_full_server(
    make_lab: LabMaker, own_redis: Server, admin: Redis, pool: tuple[str, int]
) -> None:
    # Given a worker with messages waiting
    lab = make_lab(own_redis.url, options={"lease_seconds": 2})
    worker = lab.worker(*pool)
    lab.publish("a", ["lane"], gate="gate")
    lab.started("a")
    lab.publish_many({f"m{n}": ("lane",) for n in range(20)})
    # When Redis has no memory left for longer than a lease
    admin.config_set("maxmemory", 1)
    expiry = admin.zscore("lanes:leases", "a") or 0
    until(lambda: (admin.zscore("lanes:leases", "a") or 0) > expiry + 2000)
    lab.open("gate")
    # Then all messages run
    lab.drained()
    lab.check_once_each()
    assert "does not answer the lease renewal" not in worker.log
    admin.config_set("maxmemory", 0)
    worker.stop()
