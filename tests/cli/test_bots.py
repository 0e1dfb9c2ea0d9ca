"""lanes bots: what it refuses, and what it does with the broadcasts of a bot."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from chatlanes.cli.context import BotContext
from chatlanes.settings import Settings
from chatlanes.updates.added_bots import new_key
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
