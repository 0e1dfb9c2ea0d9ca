"""Trouble with Telegram or Redis is told once, waited out, and nothing is lost; what cannot pass ends the poller."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
from redis import Redis

from chatlanes.lanes.protocol.connect import connect
from chatlanes.sandbox.ports import free_port
from chatlanes.sandbox.server import Server, start_server
from chatlanes.sandbox.simulator import Simulator
from chatlanes.settings.model import NO_BOT_GIVEN
from tests.poller.conftest import StartPoller
from tests.poller.lanes import lane
from tests.support.bot_api import TOKEN, message, set_webhook
from tests.support.waiting import WITHIN_S, until


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ({"status": 500, "times": 3}, "Telegram: 500 Internal Server Error;"),
        ({"status": 502, "body": "<html>"}, "Telegram: 502 Bad Gateway, not an answer of a Bot API to getUpdates"),
        ({"body": '{"ok":true,"result":'}, "Telegram: 200 OK, not an answer of a Bot API to getUpdates"),
        ({"body": '{"ok":true,"result":7}'}, "Telegram: an answer to getUpdates that is not a list"),
        ({"reset": True}, "Telegram: no answer (Connection reset by peer)"),
        ({"reset": True, "takes_effect": True}, "Telegram: no answer (Connection reset by peer)"),
        (
            {"status": 429, "retry_after": 1},
            "429, too many requests; trying again until it works, next in 1.0 s",
        ),
        ({"status": 409}, "Telegram: 409, another poller"),
    ],
)
def test_a_telegram_outage_is_logged_once_and_waited_out(
    simulator: Simulator, start_poller: StartPoller, redis_url: str, fault: dict[str, Any], told: str
) -> None:
    # Given updates, and polls that fail
    pushed = simulator.push(message(), message())
    simulator.fault(method="getUpdates", **fault)
    # When a poller runs
    poller = start_poller()
    # Then they arrive all the same
    until(lambda: simulator.stats()["confirmed"] == 2)
    assert lane(redis_url) == pushed
    # And the log has one line for the trouble and one for its end
    poller.tells("Telegram: works again")
    assert len(poller.told(told)) == 1
    assert len(poller.told("Telegram: ")) == 2


def test_a_change_of_the_error_is_logged(simulator: Simulator, start_poller: StartPoller) -> None:
    simulator.fault(method="getUpdates", status=500)
    simulator.fault(method="getUpdates", reset=True)
    poller = start_poller()
    poller.tells("Telegram: works again")
    assert [line.partition("Telegram: ")[2][:11] for line in poller.told("Telegram: ")] == [
        "500 Interna",
        "no answer (",
        "works again",
    ]


def test_telegram_away_at_start_is_waited_for(simulator: Simulator, start_poller: StartPoller) -> None:
    simulator.fault(method="getMe", times=2, reset=True)
    poller = start_poller()
    poller.tells("Telegram: works again")
    poller.tells("@simulated_bot")


def test_a_webhook_that_holds_the_token_is_named_until_it_is_gone(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    # Given a poller in the middle of a long poll
    poller = start_poller()
    until(lambda: simulator.stats()["polls"])
    # When a webhook is set, and ended again
    set_webhook(simulator, "https://hooks.example.org/secret-path")
    poller.tells("a webhook at hooks.example.org gets this bot's updates")
    set_webhook(simulator, "")
    # Then the poller goes on by itself
    pushed = simulator.push(message())
    until(lambda: lane(redis_url) == pushed)
    poller.tells("Telegram: works again")
    assert not poller.told("secret-path")


def test_a_conflicting_poller_is_reported_until_gone(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    # Given a poller in the middle of a long poll
    poller = start_poller()
    until(lambda: simulator.stats()["polls"])
    # When somebody else polls too: the newest wins
    with ThreadPoolExecutor() as threads:
        other = threads.submit(
            requests.post, f"{simulator.url}/bot{TOKEN}/getUpdates", {"timeout": 50}, timeout=WITHIN_S
        )
        poller.tells("another poller gets this bot's updates")
        # Then ours takes over again by itself
        assert other.result(WITHIN_S).status_code == 409
    pushed = simulator.push(message())
    until(lambda: lane(redis_url) == pushed)
    poller.tells("Telegram: works again")


def test_two_pollers_of_one_token_bring_every_update_once(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    start_poller()
    start_poller()
    pushed = simulator.push(*(message() for _ in range(500)))
    until(lambda: simulator.stats()["confirmed"] == 500)
    assert lane(redis_url) == pushed


@pytest.mark.parametrize("status", [401, 404])
@pytest.mark.parametrize("method", ["getMe", "getUpdates"])
def test_a_refused_token_ends_it_with_a_sentence(
    simulator: Simulator, start_poller: StartPoller, status: int, method: str
) -> None:
    simulator.fault(method=method, status=status)
    poller = start_poller()
    assert poller.exit_code() == 1
    assert f"Telegram refused BOT_TOKEN ({status}" in poller.lines[-1]
    assert not poller.told("Traceback")


@pytest.mark.parametrize("token", ["999:somebody-elses_token-that-is-not-known-here"])
def test_an_unknown_token_is_refused(start_poller: StartPoller, token: str) -> None:
    poller = start_poller(BOT_TOKEN=token)
    assert poller.exit_code() == 1
    assert "BOT_TOKEN" in poller.lines[-1]
    assert not poller.told(token)


def test_without_a_token_it_says_so(start_poller: StartPoller) -> None:
    poller = start_poller(BOT_TOKEN="")
    assert poller.exit_code() == 1
    assert poller.lines == [NO_BOT_GIVEN]


def test_a_wrong_setting_is_named(start_poller: StartPoller) -> None:
    poller = start_poller(POLL_TIMEOUT=70)
    assert poller.exit_code() == 2
    assert len(poller.lines) == 1
    assert poller.lines[0].startswith("POLL_TIMEOUT=70")


def test_an_order_that_cannot_be_imported_is_named(start_poller: StartPoller) -> None:
    poller = start_poller(ORDER_BY="no_such_module:keys")
    assert poller.exit_code() == 2
    assert "ORDER_BY=no_such_module:keys: there is no module no_such_module" in poller.lines[-1]
    assert not poller.told("Traceback")


def test_a_redis_that_cannot_carry_lanes_ends_it_with_a_sentence(start_poller: StartPoller, cluster: Server) -> None:
    poller = start_poller(REDIS_URL=cluster.url)
    assert poller.exit_code() == 1
    assert "cluster" in poller.lines[-1]
    assert not poller.told("Traceback")


def test_bad_redis_settings_are_logged_at_start(start_poller: StartPoller, tmp_path: Path) -> None:
    with start_server(tmp_path / "redis", extra=["--maxmemory-policy", "allkeys-lru"]) as server:
        poller = start_poller(REDIS_URL=server.url, DURABLE_REPLICAS=1)
        assert " WARNING " in poller.tells("because maxmemory-policy is allkeys-lru")
        assert " WARNING " in poller.tells("Redis has 0 replicas, and DURABLE_REPLICAS asks for 1")


def test_a_redis_that_syncs_no_more_is_noticed_within_a_minute(start_poller: StartPoller, own_redis: Server) -> None:
    # Given a poller that polls, and gets nothing
    poller = start_poller(REDIS_URL=own_redis.url, POLL_TIMEOUT=1)
    poller.tells("leading")
    # When its server is set to leave the fsync to the operating system
    with connect(own_redis.url) as client:
        client.config_set("appendfsync", "no")
    # Then it says so, once
    assert " WARNING " in poller.tells("the server is another one or changed: Redis leaves it to the operating system")
    # And also when that is over
    with connect(own_redis.url) as client:
        client.config_set("appendfsync", "always")
    assert " INFO " in poller.tells("the server is another one or changed: Redis is durable")
    assert len(poller.told("the server is another one")) == 2


def test_redis_away_at_start_is_waited_for(simulator: Simulator, start_poller: StartPoller, tmp_path: Path) -> None:
    # Given no Redis
    port = free_port()
    poller = start_poller(REDIS_URL=f"redis://127.0.0.1:{port}/0")
    assert "; start Redis there, or set REDIS_URL to where it runs;" in poller.tells("Redis: ")
    pushed = simulator.push(message())
    # When it is started
    with start_server(tmp_path / "redis", port=port) as server:
        # Then the poller goes on by itself
        until(lambda: simulator.stats()["confirmed"] == 1)
        assert lane(server.url) == pushed
        assert len(poller.told("Redis: ")) == 2


def test_redis_stopped_and_started_again_nothing_is_lost(
    simulator: Simulator, start_poller: StartPoller, tmp_path: Path
) -> None:
    # Given a poller that has appended some
    first = start_server(tmp_path / "redis")
    poller = start_poller(REDIS_URL=first.url)
    pushed = simulator.push(message(), message())
    until(lambda: simulator.stats()["confirmed"] == 2)
    # When Redis goes away and more updates come
    first.kill()
    pushed += simulator.push(message(), message())
    poller.tells("Redis: ")
    # Then they are not confirmed
    assert simulator.stats()["confirmed"] == 2
    # Until Redis is back and holds all of them
    with start_server(tmp_path / "redis", port=first.port) as second:
        until(lambda: simulator.stats()["confirmed"] == 4)
        assert lane(second.url) == pushed
        poller.tells("Redis: works again")
        assert len(poller.told("Redis: ")) <= 3  # one more where it is seen while it loads its data


def lock_out(admin: Redis) -> None:
    admin.config_set("requirepass", "another")
    admin.execute_command("AUTH", "another")
    admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


@pytest.mark.parametrize(
    ("cause", "mend", "told"),
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
def test_a_refusing_redis_is_logged_once_and_waited_out(
    simulator: Simulator,
    start_poller: StartPoller,
    own_redis: Server,
    cause: Callable[[Redis], None],
    mend: Callable[[Redis], None],
    told: str,
) -> None:
    # Given a poller at work
    poller = start_poller(REDIS_URL=own_redis.url)
    pushed = simulator.push(message())
    until(lambda: simulator.stats()["confirmed"] == 1)
    with connect(own_redis.url) as admin:
        # When Redis refuses, and another update comes
        cause(admin)
        pushed += simulator.push(message())
        poller.tells(told)
        assert simulator.stats()["confirmed"] == 1
        # Then that one is confirmed when Redis takes it
        mend(admin)
        until(lambda: simulator.stats()["confirmed"] == 2)
    assert lane(own_redis.url) == pushed
    poller.tells("Redis: works again")
    assert not poller.told("Traceback")
