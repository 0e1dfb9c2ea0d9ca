"""The checks of a server at start: one line of advice for each unsuitable setting, and none for unknown ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError

from celery_lanes.cli.run import run
from celery_lanes.embedded_server import Server, start_server
from celery_lanes.errors import ServerUnfit
from celery_lanes.protocol import Durable, Store, advice, check_rights, connect, durability
from celery_lanes.protocol.server import RIGHTS
from tests.support import ROOT
from tests.support.lab import LabMaker

#: All of them, with the names of their commands in quotes.
SCRIPTS = "".join(
    each.read_text()
    for each in (ROOT / "packages/celery-lanes/celery_lanes/protocol/lua").rglob("*.lua")
    if each.name != "rights.lua"
)


def test_a_suitable_server_gets_no_advice(redis_url: str) -> None:
    with connect(redis_url) as client:
        assert advice(client) == []


@pytest.mark.parametrize(
    ("policy", "maxmemory", "advised"),
    [
        ("allkeys-lru", "100mb", "deletes messages: they are LOST when it is full (104,857,600 bytes)"),
        ("allkeys-random", "0", "deletes messages: they are LOST when it has a maxmemory and is full"),
        ("volatile-ttl", "100mb", "forgets which messages it has seen when it is full"),
    ],
)
def test_an_evicting_server_gets_advice(tmp_path: Path, policy: str, maxmemory: str, advised: str) -> None:
    extra = ["--maxmemory-policy", policy, "--maxmemory", maxmemory]
    with start_server(tmp_path, extra=extra) as server, connect(server.url) as client:
        [sentence] = advice(client)
    assert advised in sentence
    assert f"because maxmemory-policy is {policy}. Set `maxmemory-policy noeviction`" in sentence


def test_a_replica_is_recognized(tmp_path: Path) -> None:
    with start_server(tmp_path, extra=["--replicaof", "127.0.0.1 1"]) as server, connect(server.url) as client:
        assert advice(client) == [
            "this Redis is a replica, which accepts no writes: connect to its master, or through Sentinel"
        ]


def test_missing_replicas_are_reported(redis_url: str) -> None:
    with connect(redis_url) as client:
        [sentence] = advice(client, replicas=2)
    assert sentence.startswith("Redis has 0 replicas, and `replicas` requires 2")


def tenant(url: str, *rights: str) -> str:
    """The URL of a user with these rights."""
    with connect(url) as admin:
        admin.execute_command("ACL", "SETUSER", "tenant", "reset", "on", ">pw", *rights)
    return url.replace("://", "://tenant:pw@")


@pytest.mark.every_server
def test_a_user_without_a_command_of_the_scripts_is_refused(any_server: Server, client: Redis) -> None:
    """Redis would end a script at that command, and keep what it has written before."""
    commands = {name for name in client.execute_command("COMMAND") if f"'{name.upper()}'" in SCRIPTS}
    assert {"mset", "hset", "zadd", "unlink", "publish", "time"} < commands
    for missing in sorted(commands):
        with (
            connect(tenant(any_server.url, *RIGHTS.split(), f"-{missing}")) as refused,
            pytest.raises(ServerUnfit, match=f"lanes need: {missing.upper()}. Give this user"),
        ):
            check_rights(Store(refused))
    for rights, named in (("resetkeys", "RPUSH, LPUSH, GET"), ("resetchannels", "PUBLISH")):
        with (
            connect(tenant(any_server.url, *RIGHTS.split(), rights)) as refused,
            pytest.raises(ServerUnfit, match=named),
        ):
            check_rights(Store(refused))
    with connect(tenant(any_server.url, *RIGHTS.split())) as allowed:
        check_rights(Store(allowed))
    # And none of them has left a key
    assert client.dbsize() == 0


def test_a_publisher_without_a_right_has_published_nothing(make_lab: LabMaker, redis_url: str) -> None:
    lab = make_lab(tenant(redis_url, *RIGHTS.split(), "-mset"))
    with pytest.raises(ServerUnfit, match="lanes need: MSET"):
        lab.publish("m1", ["a"])
    with connect(redis_url) as admin:
        assert admin.dbsize() == 0


def test_the_rights_that_the_error_names_are_enough(make_lab: LabMaker, redis_url: str) -> None:
    lab = make_lab(tenant(redis_url, *RIGHTS.split()))
    lab.worker("prefork")
    lab.publish_many({f"m{n}": ["a"] for n in range(3)})
    lab.drained()
    lab.check_once_each()
    for words in ("status", "dead list", "timers list", "lane a", "pause lane a", "resume lane a"):
        run(lab.app, *words.split())  # raises if Redis refuses a command


def test_a_worker_whose_user_may_not_use_info_says_so_and_exits(make_lab: LabMaker, tmp_path: Path) -> None:
    """It would take the refusal for a lost connection, and connect again indefinitely."""
    with start_server(tmp_path) as server, connect(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "tenant", "on", ">pw", "~*", "&*", "+@all", "-info")
        lab = make_lab(server.url.replace("://", "://tenant:pw@"))
        worker = lab.worker("solo", is_awaited=False)
        assert worker.exit_code() != 0
    assert "Redis refuses commands that lanes need: " in worker.log
    assert "'info' command. Give this user the rights for them: ACL SETUSER NAME ~*" in worker.log


def test_without_config_the_unchecked_settings_are_named(tmp_path: Path) -> None:
    with start_server(tmp_path, appendfsync="everysec") as server, connect(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "tenant", "on", ">pw", "~*", "&*", "+@all", "-config")
        with connect(server.url.replace("://", "://tenant:pw@")) as client:
            kept = durability(client)
            assert advice(client) == []  # INFO contains the policy, too
    assert kept.how is Durable.NOT
    assert "appendfsync unknown, because CONFIG is forbidden" in str(kept)


def test_no_fsync_during_rewrite_is_not_durable(tmp_path: Path) -> None:
    with start_server(tmp_path, extra=["--no-appendfsync-on-rewrite", "yes"]) as server, connect(server.url) as client:
        kept = durability(client)
    assert not kept.safe
    assert "Set `no-appendfsync-on-rewrite no`" in str(kept)


def test_settings_that_cannot_be_read_are_reported_as_unknown() -> None:
    def forbidden(*_: Any) -> None:
        raise NoPermissionError("this user has no permissions to run the 'config|get' command")

    client: Any = SimpleNamespace(info=dict, config_get=forbidden)
    assert not durability(client).safe
    version, policy = advice(client)
    assert "hides its version" in version
    assert "make sure that maxmemory-policy is noeviction" in policy


def test_a_worker_logs_advice_once(make_lab: LabMaker, tmp_path: Path) -> None:
    with start_server(tmp_path / "redis", extra=["--maxmemory-policy", "allkeys-lru", "--appendonly", "no"]) as server:
        lab = make_lab(server.url)
        lab.publish("m", ["lane"])
        worker = lab.worker("threads", 2)
        lab.drained()
        assert worker.log.count("because maxmemory-policy is allkeys-lru") == 1
        assert worker.log.count("Redis keeps no append-only file") == 1
        worker.stop()
