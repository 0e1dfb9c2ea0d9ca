"""A Redis that replies with errors: workers log it once, wait, and continue by themselves when it works again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import pytest
from redis import Redis

from celery_lanes.embedded_server import Server, start_server
from celery_lanes.protocol import connect
from tests.lanes.conftest import POOLS
from tests.support.lab import Lab, LabMaker
from tests.support.lab_app import LANE_QUEUES, ORDINARY_QUEUE
from tests.support.waiting import WITHIN_S, until
from tests.support.worker import READY, Worker


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Server]:
    with start_server(tmp_path / "redis", extra=["--enable-protected-configs", "yes"]) as running:
        yield running


@pytest.fixture
def admin(own_redis: Server) -> Iterator[Redis]:
    """A client that was connected before Redis refuses others."""
    with connect(own_redis.url) as client:
        yield client


def workers_that_run_a_message_each(lab: Lab, pools: Sequence[tuple[str, int]]) -> list[Worker]:
    """Start a worker for each pool, with a lane queue of its own and the ordinary queue. Each runs a message, with 20
    others behind it.
    """
    workers = [
        lab.worker(*pool, "-Q", f"{queue},{ORDINARY_QUEUE}", is_awaited=False)
        for pool, queue in zip(pools, LANE_QUEUES, strict=False)
    ]
    for queue in LANE_QUEUES[: len(pools)]:
        lab.publish(f"{queue}:first", [queue], queue=queue, gate="gate")
        for n in range(20):
            lab.publish(f"{queue}:{n}", [queue], queue=queue)
    for worker in workers:
        worker.tells(READY)
    lab.started(*firsts(pools))
    return workers


def firsts(pools: Sequence[tuple[str, int]]) -> list[str]:
    """The messages that run."""
    return [f"{queue}:first" for queue in LANE_QUEUES[: len(pools)]]


def stop(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.ask_to_stop()
    assert {worker.exit_code() for worker in workers} == {0}


def check_recovery(
    lab: Lab,
    pools: Sequence[tuple[str, int]],
    break_it: Callable[[], object],
    fix: Callable[[], object],
    error: str,
    *,
    reconnects: bool = True,
) -> None:
    """Break Redis while a worker of each pool runs a message; each logs the error. Fix it; then every message runs
    once, in order.
    """
    workers = workers_that_run_a_message_each(lab, pools)
    break_it()
    for worker, (pool, _) in zip(workers, pools, strict=True):
        worker.tells(f"lanes: Redis does not answer the lease renewal: {error}")
        if reconnects and pool != "solo":  # its only thread is busy with the handler
            worker.tells("Cannot connect to redis://")
    # The running messages keep their leases, and are settled when that is possible
    lab.open("gate")
    lab.ended(*firsts(pools))
    fix()
    lab.drained()
    lab.check_once_each()
    # The workers logged the error once, and neither exited nor restarted repeatedly
    for worker in workers:
        assert "Unrecoverable" not in worker.log
        assert "Frequent restarts" not in worker.log
        assert "CPendingDeprecationWarning" not in worker.log
        assert worker.log.count("lanes: Redis does not answer the lease renewal") == 1
    stop(workers)


def test_a_server_that_becomes_a_replica(make_lab: LabMaker, own_redis: Server, admin: Redis) -> None:
    check_recovery(
        make_lab(own_redis.url),
        list(POOLS.items()),
        lambda: admin.replicaof("127.0.0.1", 1),
        lambda: admin.replicaof("NO", "ONE"),
        "You can't write against a read only replica",
    )


def test_a_master_without_enough_replicas(make_lab: LabMaker, own_redis: Server, admin: Redis) -> None:
    check_recovery(
        make_lab(own_redis.url),
        [("threads", 8)],
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

    check_recovery(make_lab(own_redis.url), [("prefork", 2)], break_disk, fix_disk, "MISCONF")


def test_a_server_that_is_busy_with_a_script(make_lab: LabMaker, own_redis: Server, admin: Redis) -> None:
    admin.config_set("busy-reply-threshold", 50)
    with connect(own_redis.url, timeout_s=WITHIN_S) as busy, ThreadPoolExecutor() as threads:
        check_recovery(
            make_lab(own_redis.url),
            [("threads", 8)],
            lambda: threads.submit(busy.eval, "while true do end", 0),
            lambda: admin.script_kill(),
            "BUSY",
            reconnects=False,
        )


def test_a_server_that_is_frozen_for_longer_than_a_lease(make_lab: LabMaker, own_redis: Server) -> None:
    # The workers cannot renew their leases meanwhile, but do not lose the messages
    frozen_at_s = 0.0

    def freeze() -> None:
        nonlocal frozen_at_s
        os.kill(own_redis.pid, signal.SIGSTOP)
        frozen_at_s = monotonic()

    def thaw() -> None:
        until(lambda: monotonic() > frozen_at_s + 7)
        os.kill(own_redis.pid, signal.SIGCONT)

    lab = make_lab(own_redis.url, options={"lease_seconds": 6})
    check_recovery(lab, [("prefork", 2), ("solo", 1)], freeze, thaw, "Timeout", reconnects=False)
    assert lab.count("expired") == 0


def test_a_server_with_another_password(make_lab: LabMaker, own_redis: Server, admin: Redis) -> None:
    def lock_out() -> None:
        admin.config_set("requirepass", "secret")
        admin.execute_command("AUTH", "secret")
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def let_in() -> None:
        admin.config_set("requirepass", "")

    check_recovery(make_lab(own_redis.url), [("prefork", 2), ("gevent", 50)], lock_out, let_in, "")


def test_workers_run_the_messages_of_a_full_server(make_lab: LabMaker, own_redis: Server, admin: Redis) -> None:
    # Given workers with messages waiting
    pools = [("threads", 8), ("solo", 1)]
    lab = make_lab(own_redis.url, options={"lease_seconds": 2})
    workers = workers_that_run_a_message_each(lab, pools)
    # When Redis has no memory left for longer than a lease
    admin.config_set("maxmemory", 1)
    expiries = {message: admin.zscore("lanes:leases", message) or 0 for message in firsts(pools)}
    until(lambda: all((admin.zscore("lanes:leases", each) or 0) > expiries[each] + 2000 for each in expiries))
    lab.open("gate")
    # Then all messages run
    lab.drained()
    lab.check_once_each()
    for worker in workers:
        assert "does not answer the lease renewal" not in worker.log
    admin.config_set("maxmemory", 0)
    stop(workers)
