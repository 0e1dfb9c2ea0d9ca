"""The records of added bots: sealed, followed, and never shown."""

from __future__ import annotations

import json

import pytest
from redis import Redis

import chatlanes.bots
from celery_lanes.protocol import connect
from chatlanes.logs import Secrets
from chatlanes.settings import Settings, SettingsError, load, secret_from
from chatlanes.telegram.client import is_read_only
from chatlanes.updates.added_bots import ADDED, BotRecord, Followed, NotOpenedError, Registry, new_key

ONE, TWO = "7001:SECRET-of_the_first", "7002:SECRET-of_the_second"
OLD, NEW = new_key(), new_key()


def settings(key: str, redis_url: str = "redis://127.0.0.1", **more: str) -> Settings:
    return load({"BOTS_KEY": key, "BOT": "mybot:handle", "ORDER_BY": "user", "REDIS_URL": redis_url, **more}, None)


@pytest.fixture
def client(redis_url: str) -> Redis:
    return connect(redis_url)


def added(registry: Registry, token: str, added_ms: int = 1) -> None:
    registry.put(
        int(token.partition(":")[0]), BotRecord(registry.seals.seal(token), "tenants:handle", "ann_bot", added_ms)
    )


def test_an_added_bot_has_the_settings_of_the_deployment(client: Redis) -> None:
    registry = Registry(client, settings(OLD))
    added(registry, ONE)
    followed = Followed(registry)
    assert followed.look() is True
    bot = followed.served[7001]
    assert (bot.token, bot.bot, bot.order_by, bot.bot_name) == (ONE, "tenants:handle", "user", "7001")
    assert (bot.bot_id, bot.queue_group, bot.express_queue) == (7001, "updates", "updates.express")
    assert "SECRET" not in repr(bot)
    assert settings(OLD).served == ()


def test_a_bot_that_does_not_change_is_the_same_object(client: Redis) -> None:
    registry = Registry(client, settings(f"{NEW},{OLD}"))
    added(registry, ONE)
    followed = Followed(registry)
    followed.look()
    before = followed.served[7001]
    assert followed.look() is False
    # When another one is added, and its own token is sealed with another key
    added(registry, TWO)
    registry.seal_again(7001)
    assert followed.look() is True
    assert followed.served[7001] is before
    # And when it is added again
    added(registry, ONE, 2)
    followed.look()
    assert followed.served[7001] is not before


def test_a_bot_of_bot_token_is_not_an_added_one(client: Redis, caplog: pytest.LogCaptureFixture) -> None:
    # Given two added bots, one of which is also that of BOT_TOKEN
    registry = Registry(client, settings(OLD, BOT_TOKEN=ONE))
    added(registry, ONE)
    added(registry, TWO)
    # Then it is not fetched a second time, and the log says so, once
    followed = Followed(registry)
    followed.look()
    added(registry, TWO, 2)
    followed.look()
    assert list(followed.served) == [7002]
    assert caplog.text.count("run `chatlanes lanes bots remove 7001`") == 1


def test_of_a_bot_of_bot_token_only_the_added_record_is_dropped(
    client: Redis, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a bot of BOT_TOKEN that was added, removed with --drop, and added again
    configured = settings(OLD, redis_url, BOT_TOKEN=ONE)
    registry = Registry(client, configured)
    added(registry, ONE)
    registry.remove(7001, drop=True)
    assert Followed(registry).look()
    added(registry, ONE)
    # When it is removed with --drop once more, then nothing of it is dropped, and the log is quiet
    assert chatlanes.bots.remove(7001, drop=True, settings=configured) is True
    assert registry.all_stored() == {}
    assert Followed(registry).look()
    assert caplog.text == ""


def test_the_first_key_seals_and_all_open(client: Redis) -> None:
    added(Registry(client, settings(OLD)), ONE)
    both = Registry(client, settings(f"{NEW},{OLD}"))
    with pytest.raises(NotOpenedError, match="write that key into BOTS_KEY too"):
        Registry(client, settings(NEW)).settings_of(7001, both.stored(7001) or b"")
    both.seal_again(7001)
    bot = Registry(client, settings(NEW)).settings_of(7001, both.stored(7001) or b"")
    assert bot is not None
    assert bot.token == ONE


def test_sealing_again_does_not_bring_back_a_removed_bot(client: Redis) -> None:
    registry = Registry(client, settings(OLD))
    registry.seal_again(7001)
    assert registry.all_stored() == {}
    registry.remove(7001, drop=True)
    registry.seal_again(7001)
    assert registry.records() == {}


def test_a_record_of_another_bot_or_release_is_refused(client: Redis) -> None:
    registry = Registry(client, settings(OLD))
    added(registry, ONE)
    stored = registry.stored(7001) or b""
    with pytest.raises(NotOpenedError, match="the record of added bot 7002 has the token of another bot"):
        registry.settings_of(7002, stored)
    newer = json.dumps({**json.loads(stored), "v": 2})
    client.hset(ADDED, "7001", newer)
    with pytest.raises(NotOpenedError, match="the record of added bot 7001 cannot be read"):
        registry.records()


def test_an_opened_token_is_cut_out_of_texts(client: Redis) -> None:
    token = "7003:SECRET-of_the_third"
    shown = f"at /file/{token} {token.replace(':', '%3A')} {secret_from(token)} 7003:other"
    assert Secrets().cut(shown) == shown
    registry = Registry(client, settings(OLD))
    added(registry, token)
    registry.settings_of(7003, registry.stored(7003) or b"")
    assert Secrets().cut(shown) == "at /file/<token> <token> <token> 7003:other"
    assert Secrets().head(f"{'x' * 10}{token}", 20) == "x" * 10
    assert Secrets.of(settings(OLD)).cut(f"the key {OLD}") == "the key <token>"


def test_without_a_key_there_are_no_added_bots(client: Redis) -> None:
    with pytest.raises(SettingsError, match="BOTS_KEY is not set"):
        Registry(client, load({}, None))


def test_the_token_of_a_managed_bot_is_not_in_the_journal() -> None:
    assert is_read_only("getManagedBotToken")
