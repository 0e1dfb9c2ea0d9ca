"""lanes send and lanes sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from celery_lanes.protocol import Set, Store, Write, keys
from chatlanes.cli.context import BotContext
from chatlanes.outbox import State, ending
from chatlanes.settings import Settings
from chatlanes.telegram.errors import BadRequest
from tests.cli.conftest import Cli


@pytest.fixture(autouse=True)
def with_token(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> None:
    settings = Settings(bot_token="1:A", redis_url=redis_url, queues=1, _env_file=None)
    monkeypatch.setattr(BotContext, "bots", lambda _: (settings,))
    monkeypatch.setattr(BotContext, "bot_ids", {1: "updates"})


def test_a_call_is_sent_to_a_chat(cli: Cli, tmp_path: Path) -> None:
    # A call with parameters, and one with a text from a file, to a group
    [first] = cli.said("send", "7", "sendMessage", "--param", "text=hi", "--param", "disable_notification=true")
    (tmp_path / "news.txt").write_text("News!\n")
    command = ("send", "-100123", "sendMessage", "--text-file", str(tmp_path / "news.txt"), "--once", "news")
    [second] = cli.said(*command)
    assert cli.said(*command) == [second]
    assert Store(cli.client).pending() == 2
    assert b'"disable_notification":true' in cli.client.get(keys.body(first))
    assert b'"chat_id":-100123,"text":"News!"' in cli.client.get(keys.body(second))
    # Both wait
    assert cli.said("sent", first) == ["waiting"]
    assert json.loads(cli.text("sent", first, "--json")) == {
        "id": first,
        "state": "waiting",
        "result": None,
        "error": None,
        "why": "",
        "ended_ms": 0,
    }


def test_results_are_shown(cli: Cli) -> None:
    [id_] = cli.said("send", "7", "sendMessage", "--param", "text=hi")
    error = BadRequest("sendMessage", 7, "Bad Request: chat not found", 400)
    # One that was sent
    _end(cli, ending(id_, 1_000, State.SENT, result={"message_id": 3}))
    first, *result = cli.said("sent", id_)
    assert first.startswith("sent at ")
    assert json.loads("".join(result)) == {"message_id": 3}
    # One that was refused
    _end(cli, ending(id_, 1_000, State.REFUSED, error=error, why=error.description))
    [line] = cli.said("sent", id_)
    assert line.startswith("refused at ")
    assert line.endswith(": Bad Request: chat not found")
    assert json.loads(cli.text("sent", id_, "--json"))["error"] == str(error)


def _end(cli: Cli, writes: list[Write]) -> None:
    [stored] = [write for write in writes if isinstance(write, Set)]
    cli.client.set(stored.key, stored.value)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("send", "7", "sendMesage"), "did you mean sendMessage?"),
        (("send", "7", "sendMessage"), "sendMessage needs text"),
        (("send", "7", "sendMessage", "--param", "text"), "write NAME=VALUE"),
        (("send", "7", "sendMessage", "--param", "text=a", "--param", "text=b"), "--param text is given twice"),
        (("send", "7", "sendMessage", "--bot", "x"), "a call needs the token of its bot"),
        (("send", "news", "sendMessage"), "'news' is not a valid integer"),
        (("sent", "7"), "is not the id of a call"),
    ],
)
def test_mistakes_are_told(cli: Cli, command: tuple[str, ...], sentence: str) -> None:
    assert sentence in cli.text(*command)
    assert cli.code in (1, 2)
