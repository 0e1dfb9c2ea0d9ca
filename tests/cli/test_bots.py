"""lanes bots: what it refuses, and what it does with the broadcasts of a bot."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from celery_lanes.protocol import Store
from chatlanes.broadcasts import Call, Feeder
from chatlanes.cli.context import BotContext
from chatlanes.settings import Settings
from chatlanes.settings.bots import AddedBot
from chatlanes.updates.added_bots import ADDED, CHANGES, new_key, read_record
from tests.cli.conftest import Cli


@pytest.fixture
def settings(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    settings = Settings(bots_key=new_key(), redis_url=redis_url, _env_file=None)
    monkeypatch.setattr(BotContext, "settings", lambda _: settings)
    return settings


@pytest.mark.usefixtures("settings")
def test_an_id_that_no_bot_has_is_refused(cli: Cli) -> None:
    assert cli.said("bots", "remove", "--", "-1") == ["name the bot by its id, the digits of its token"]
    assert cli.code == 1


@pytest.mark.usefixtures("settings")
def test_closed_standard_input_has_no_token(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chatlanes.cli.bots.sys", SimpleNamespace(stdin=None))
    assert cli.said("bots", "add")[0].startswith("the token (its value is secret and not shown) is not")
    assert cli.code == 1


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("options", [[], ["--drop"]])
def test_a_bot_that_was_never_added_is_not_removed(cli: Cli, options: list[str]) -> None:
    # Given updates of other bots
    cli.append("9876543210:1", "9876543210/chat:5", queue="updates.0")
    # When a bot without any is removed, then nothing is stored
    assert cli.said("bots", "remove", "987654321", *options) == [
        "there is no added bot 987654321: `chatlanes lanes bots list` shows all"
    ]
    assert cli.code == 1
    assert cli.client.exists(ADDED, CHANGES) == 0


@pytest.mark.parametrize("waiting", ["update", "timer", "broadcast"])
def test_drop_is_for_what_waits_for_a_bot_that_was_removed_before(cli: Cli, settings: Settings, waiting: str) -> None:
    # Given something that waits for a bot which is not added any more
    store = Store(cli.client)
    feeder = Feeder(store, AddedBot.removed(settings, 7001))
    if waiting == "update":
        cli.append("7001:1", "7001/chat:5", queue="updates.0")
    else:
        feeder.broadcasts.store("b1", Call("sendMessage", {"text": "hi"}), [5], 20)
        (feeder.start if waiting == "timer" else feeder.broadcasts.enlist)("b1")
    # Then it is removed with that
    assert cli.said("bots", "remove", "7001", "--drop") == [
        "removed bot 7001; its waiting updates are settled unrun, and its broadcasts cancelled"
    ]
    assert read_record(7001, cli.client.hget(ADDED, "7001")).is_removed
