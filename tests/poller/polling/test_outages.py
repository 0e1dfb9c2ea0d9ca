"""Failures of Telegram or Redis are logged once, waited out, and lose nothing; permanent errors end the poller."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
from redis import Redis

from celery_lanes.embedded_server import Server, free_port, start_server
from celery_lanes.protocol import connect
from chatlanes.settings.model import NO_BOT_GIVEN
from chatlanes_sandbox.simulator import Simulator
from tests.poller.conftest import StartPoller
from tests.poller.lanes import lane
from tests.support.bot_api import TOKEN, message, set_webhook
from tests.support.waiting import WITHIN_S, until


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ({"status": 500, "times": 3}, "Telegram: 500 Internal Server Error;"),
        ({"status": 502, "body": "<html>"}, "Telegram: 502 Bad Gateway, not an answer of a Bot API to getUpdates"),
        ({"body": '{"ok":true,"result":'}, "Telegram: 200 OK, not an answer of a Bot API to getUpdates"),
        ({"body": '{"ok":true,"result":7}'}, "Telegram: the answer to getUpdates is not a list"),
        ({"reset": True}, "Telegram: no answer (Connection reset by peer)"),
        ({"reset": True, "takes_effect": True}, "Telegram: no answer (Connection reset by peer)"),
        (
            {"status": 429, "retry_after": 1},
            "429, too many requests; retrying, next attempt in 1.0 s",
        ),
        ({"status": 409}, "Telegram: 409, another poller"),
    ],
)
def test_telegram_outage_is_logged_once_and_waited_out(
    simulator: Simulator, start_poller: StartPoller, redis_url: str, fault: dict[str, Any], text: str
) -> None:
    # Given updates and failing polls
    pushed = simulator.push(message(), message())
    simulator.fault(method="getUpdates", **fault)
    # When a poller runs
    poller = start_poller()
    # Then the updates still arrive
    until(lambda: simulator.stats()["confirmed"] == 2)
    assert lane(redis_url) == pushed
    # And the log has one line for the failure and one for its end
    poller.tells("Telegram: works again")
    assert len(poller.told(text)) == 1
    assert len(poller.told("Telegram: ")) == 2


def test_changed_error_is_logged(simulator: Simulator, start_poller: StartPoller) -> None:
    simulator.fault(method="getUpdates", status=500)
    simulator.fault(method="getUpdates", reset=True)
    poller = start_poller()
    poller.tells("Telegram: works again")
    assert [line.partition("Telegram: ")[2][:11] for line in poller.told("Telegram: ")] == [
        "500 Interna",
        "no answer (",
        "works again",
    ]


def test_telegram_outage_at_start_is_waited_out(simulator: Simulator, start_poller: StartPoller) -> None:
    simulator.fault(method="getMe", times=2, reset=True)
    poller = start_poller()
    poller.tells("Telegram: works again")
    poller.tells("@simulated_bot")


def test_webhook_is_reported_until_it_is_deleted(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    # Given a poller during a long poll
    poller = start_poller()
    until(lambda: simulator.stats()["polls"])
    # When a webhook is set, and deleted
    set_webhook(simulator, "https://hooks.example.org/secret-path")
    poller.tells("a webhook at hooks.example.org gets this bot's updates")
    set_webhook(simulator, "")
    # Then the poller continues by itself
    pushed = simulator.push(message())
    until(lambda: lane(redis_url) == pushed)
    poller.tells("Telegram: works again")
    assert not poller.told("secret-path")


def test_conflicting_poller_is_reported_until_gone(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    # Given a poller during a long poll
    poller = start_poller()
    until(lambda: simulator.stats()["polls"])
    # When another process polls too: the newest poll wins
    with ThreadPoolExecutor() as threads:
        other = threads.submit(
            requests.post, f"{simulator.url}/bot{TOKEN}/getUpdates", {"timeout": 50}, timeout=WITHIN_S
        )
        poller.tells("another poller gets this bot's updates")
        # Then ours continues by itself
        assert other.result(WITHIN_S).status_code == 409
    pushed = simulator.push(message())
    until(lambda: lane(redis_url) == pushed)
    poller.tells("Telegram: works again")


def test_two_pollers_append_every_update_once(simulator: Simulator, start_poller: StartPoller, redis_url: str) -> None:
    start_poller()
    start_poller()
    pushed = simulator.push(*(message() for _ in range(500)))
    until(lambda: simulator.stats()["confirmed"] == 500)
    assert lane(redis_url) == pushed


@pytest.mark.parametrize("status", [401, 404])
@pytest.mark.parametrize("method", ["getMe", "getUpdates"])
def test_refused_token_ends_the_poller(
    simulator: Simulator, start_poller: StartPoller, status: int, method: str
) -> None:
    simulator.fault(method=method, status=status)
    poller = start_poller()
    assert poller.exit_code() == 1
    assert f"Telegram refused the bot token ({status}" in poller.lines[-1]
    assert not poller.told("Traceback")


@pytest.mark.parametrize("token", ["999:somebody-elses_token-that-is-not-known-here"])
def test_unknown_token_is_refused(start_poller: StartPoller, token: str) -> None:
    poller = start_poller(BOT_TOKEN=token)
    assert poller.exit_code() == 1
    assert "the bot token" in poller.lines[-1]
    assert not poller.told(token)


def test_missing_token_is_reported(start_poller: StartPoller) -> None:
    poller = start_poller(BOT_TOKEN="")
    assert poller.exit_code() == 2
    assert poller.lines == [NO_BOT_GIVEN]


def test_invalid_setting_is_named(start_poller: StartPoller) -> None:
    poller = start_poller(POLL_TIMEOUT=70)
    assert poller.exit_code() == 2
    assert len(poller.lines) == 1
    assert poller.lines[0].startswith("POLL_TIMEOUT=70")


def test_order_that_cannot_be_imported_is_named(start_poller: StartPoller) -> None:
    poller = start_poller(ORDER_BY="no_such_module:keys")
    assert poller.exit_code() == 2
    assert "ORDER_BY=no_such_module:keys: there is no module no_such_module" in poller.lines[-1]
    assert not poller.told("Traceback")


def test_unsupported_redis_ends_the_poller(start_poller: StartPoller, cluster: Server) -> None:
    poller = start_poller(REDIS_URL=cluster.url)
    assert poller.exit_code() == 1
    assert "cluster" in poller.lines[-1]
    assert not poller.told("Traceback")


def test_unsafe_redis_settings_are_logged_at_start(start_poller: StartPoller, tmp_path: Path) -> None:
    with start_server(tmp_path / "redis", extra=["--maxmemory-policy", "allkeys-lru"]) as server:
        poller = start_poller(REDIS_URL=server.url, DURABLE_REPLICAS=1)
        assert " WARNING " in poller.tells("because maxmemory-policy is allkeys-lru")
        assert " WARNING " in poller.tells("Redis has 0 replicas, and DURABLE_REPLICAS requires 1")


def test_change_of_durability_is_noticed_within_a_minute(start_poller: StartPoller, own_redis: Server) -> None:
    # Given a poller that gets no updates
    poller = start_poller(REDIS_URL=own_redis.url, POLL_TIMEOUT=1)
    poller.tells("leading")
    # When its server is reconfigured to leave the fsync to the operating system
    with connect(own_redis.url) as client:
        client.config_set("appendfsync", "no")
    # Then this is logged once
    assert " WARNING " in poller.tells(
        "the Redis server or its settings changed: Redis lets the operating system decide"
    )
    # And so is the return to durability
    with connect(own_redis.url) as client:
        client.config_set("appendfsync", "always")
    assert " INFO " in poller.tells("the Redis server or its settings changed: Redis is durable")
    assert len(poller.told("the Redis server or its settings changed")) == 2


def test_redis_outage_at_start_is_waited_out(simulator: Simulator, start_poller: StartPoller, tmp_path: Path) -> None:
    # Given no Redis
    port = free_port()
    poller = start_poller(REDIS_URL=f"redis://127.0.0.1:{port}/0")
    assert "; start Redis there, or set REDIS_URL to where it runs;" in poller.tells("Redis: ")
    pushed = simulator.push(message())
    # When it is started
    with start_server(tmp_path / "redis", port=port) as server:
        # Then the poller continues by itself
        until(lambda: simulator.stats()["confirmed"] == 1)
        assert lane(server.url) == pushed
        assert len(poller.told("Redis: ")) == 2


def test_restart_of_redis_loses_nothing(simulator: Simulator, start_poller: StartPoller, tmp_path: Path) -> None:
    # Given a poller that has appended updates
    first = start_server(tmp_path / "redis")
    poller = start_poller(REDIS_URL=first.url)
    pushed = simulator.push(message(), message())
    until(lambda: simulator.stats()["confirmed"] == 2)
    # When Redis is unavailable and more updates arrive
    first.kill()
    pushed += simulator.push(message(), message())
    poller.tells("Redis: ")
    # Then they are not confirmed
    assert simulator.stats()["confirmed"] == 2
    # Until Redis has all of them
    with start_server(tmp_path / "redis", port=first.port) as second:
        until(lambda: simulator.stats()["confirmed"] == 4)
        assert lane(second.url) == pushed
        poller.tells("Redis: works again")
        assert len(poller.told("Redis: ")) <= 3  # one more if it is seen while it loads its data


def lock_out(admin: Redis) -> None:
    admin.config_set("requirepass", "another")
    admin.execute_command("AUTH", "another")
    admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


@pytest.mark.parametrize(
    ("cause", "repair", "text"),
    [
        (
            lambda admin: admin.config_set("maxmemory", 1),
            lambda admin: admin.config_set("maxmemory", 0),
            "Redis: command not allowed when used memory > 'maxmemory'",
        ),
        (
            lambda admin: admin.replicaof("127.0.0.1", 1),
            lambda admin: admin.replicaof("NO", "ONE"),
            "Redis: You can't write against a read only replica",
        ),
        (lock_out, lambda admin: admin.config_set("requirepass", ""), "Redis: "),
    ],
    ids=["full", "a replica", "another password"],
)
def test_refusing_redis_is_logged_once_and_waited_out(
    simulator: Simulator,
    start_poller: StartPoller,
    own_redis: Server,
    cause: Callable[[Redis], None],
    repair: Callable[[Redis], None],
    text: str,
) -> None:
    # Given a working poller
    poller = start_poller(REDIS_URL=own_redis.url)
    pushed = simulator.push(message())
    until(lambda: simulator.stats()["confirmed"] == 1)
    with connect(own_redis.url) as admin:
        # When Redis refuses writes, and another update arrives
        cause(admin)
        pushed += simulator.push(message())
        poller.tells(text)
        assert simulator.stats()["confirmed"] == 1
        # Then it is confirmed when Redis accepts it
        repair(admin)
        until(lambda: simulator.stats()["confirmed"] == 2)
    assert lane(own_redis.url) == pushed
    poller.tells("Redis: works again")
    assert not poller.told("Traceback")
