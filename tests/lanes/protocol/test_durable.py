"""An append waits for the disk or a replica. A server that is replaced or changed is checked before appends count."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from celery_lanes.embedded_server import Server, start_server
from celery_lanes.errors import ServerUnfit
from celery_lanes.protocol import Appended, Durable, DurableAppends, NewMessage, connect, durable, keys, server
from tests.support.waiting import until
from tests.support.waiting_server import believe


def batch(number: int) -> list[NewMessage]:
    return [NewMessage(f"m{number}", "q", "{}", ["lane"], once=("shop", number))]


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Server]:
    with start_server(tmp_path / "master", extra=["--repl-diskless-sync-delay", "0"]) as running:
        yield running


@pytest.fixture
def replica(master: Server, tmp_path: Path) -> Iterator[Server]:
    with start_server(tmp_path / "replica", extra=["--replicaof", f"127.0.0.1 {master.port}"]) as running:
        with connect(running.url) as client:
            until(lambda: client.info("replication")["master_link_status"] == "up")
        yield running


@pytest.mark.parametrize("is_noticed", [False, True])
def test_a_replaced_server_is_checked_by_the_next_append(
    master: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_noticed: bool
) -> None:
    caplog.set_level(logging.INFO)
    with connect(master.url) as client:
        # Given appends to a durable server
        appends = DurableAppends(client)
        assert appends.durability.how is Durable.ALWAYS
        appends.append(batch(1))
        master.kill()
        if is_noticed:
            with pytest.raises(RedisError):
                appends.append(batch(2))
        # When another server replaces it, and the old connection has failed before the next append or not
        for how, fsync, level in ((Durable.WAITAOF, "everysec", "INFO"), (Durable.NOT, "no", "WARNING")):
            with start_server(tmp_path / fsync, port=master.port, appendfsync=fsync) as other:
                if how is Durable.WAITAOF:
                    believe(other)
                assert appends.append(batch(2)).added == 1
                # Then its durability is determined and logged
                assert appends.durability.how is how
                assert (caplog.records[-1].levelname, str(appends.durability)) == (
                    level,
                    caplog.records[-1].message.removeprefix("the Redis server or its settings changed: "),
                )


def test_a_changed_server_is_noticed_by_the_next_append(
    master: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(durable, "CHECK_EVERY_S", 0.0)
    with connect(master.url) as client, connect(master.url) as admin:
        appends = DurableAppends(client)
        appends.append(batch(1))
        admin.config_set("appendfsync", "no")
        assert appends.append(batch(2)).added == 1
        assert appends.durability.how is Durable.NOT
        assert "the Redis server or its settings changed: Redis lets the operating system decide" in caplog.text
        admin.config_set("appendfsync", "always")
        appends.recheck()
        assert appends.durability.how is Durable.ALWAYS


def test_a_replacement_that_is_too_old_is_refused(
    master: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(master.url) as client:
        appends = DurableAppends(client)
        master.kill()
        monkeypatch.setattr(server, "OLDEST", (99, 0))
        with start_server(tmp_path / "master", port=master.port), pytest.raises(ServerUnfit, match="too old for lanes"):
            appends.append(batch(1))


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_an_append_returns_when_the_replica_has_it(master: Server, replica: Server, fsync: str) -> None:
    with connect(master.url) as client, connect(replica.url) as reader:
        client.config_set("appendfsync", fsync)
        appends = DurableAppends(client, replicas=1)
        # Given a server without the scripts, and then one that has loaded them
        for number in (1, 2):
            # When a batch is appended, then the replica has it
            assert appends.append(batch(number)).added == 1
            assert reader.exists(keys.message(f"m{number}"))
        # And a batch that adds nothing waits for the replica, too
        assert appends.append(batch(2)).seen == 1
        assert client.info("commandstats")["cmdstat_wait"]["calls"] >= 3


def test_an_append_fails_while_the_replica_is_frozen(
    master: Server, replica: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(master.url) as client:
        appends = DurableAppends(client, replicas=1)
        # Given a replica that is frozen
        monkeypatch.setattr(durable, "WAIT_MS", 50)
        replica.process.send_signal(signal.SIGSTOP)
        # When a batch is appended, then the append fails
        with pytest.raises(RedisTimeoutError, match=r"0 of 1 replicas \(`replicas`\) confirmed it"):
            appends.append(batch(1))
        # Until the replica has the batch
        monkeypatch.setattr(durable, "WAIT_MS", 5_000)
        replica.process.send_signal(signal.SIGCONT)
        assert appends.append(batch(1)) == Appended(added=0, seen=1, buried=0, pending=1)
