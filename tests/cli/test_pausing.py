"""lanes pause and resume: a chat, a queue, a bot; and how status shows pauses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kombu import Queue

import celery_lanes as lanes
from celery_lanes.cli import status
from tests.cli.conftest import Cli


def ready(cli: Cli, *queues: str) -> list[str]:
    """The updates that a worker of these queues would get; they are released again."""
    turned = cli.store.turn(queues or ["shop.0", "shop.1"], holder="w", lease_ms=60_000, room=9)
    cli.store.release([(message.id, message.fence) for message in turned.leased])
    return [message.id for message in turned.leased]


def test_chat_is_paused_and_resumed(cli: Cli) -> None:
    cli.append("1:1", "1/chat:7")
    cli.append("1:2", "1/chat:8")
    assert cli.said("pause", "chat", "1/chat:7") == ["paused 1/chat:7"]
    assert cli.said("pause", "chat", "1/chat:7") == ["already paused: 1/chat:7"]
    assert ready(cli) == ["1:2"]
    assert cli.said("resume", "chat", "1/chat:7") == ["resumed 1/chat:7"]
    assert cli.said("resume", "chat", "1/chat:7") == ["not paused: 1/chat:7"]
    assert sorted(ready(cli)) == ["1:1", "1:2"]
    assert cli.code == 0


def test_key_of_an_app_without_bots_is_taken_as_it_is(cli: Cli) -> None:
    cli.bury("m0", "customer:9")
    assert cli.said("dead", "drop", "--all", "--chat", "customer:9", "--yes") == ["dropped 1 update"]
    cli.append("m1", "customer:9")
    cli.append("m2", "9")
    cli.append("m3", "customer:10")
    assert cli.said("pause", "chat", "customer:9") == ["paused customer:9"]
    assert cli.said("pause", "chat", "9") == ["paused 9"]
    assert ready(cli) == ["m3"]
    assert cli.said("chat", "customer:9")[0].startswith("customer:9: 1 in the lane, paused since ")
    assert cli.said("resume", "chat", "customer:9") == ["resumed customer:9"]
    assert sorted(ready(cli)) == ["m1", "m3"]


def test_chat_needs_the_id_of_its_bot(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.app, "main", "chatlanes")  # of which the settings name no token
    assert cli.said("pause", "chat", "7") == [
        "the bot's id is unknown here, because its token is not set: put the id before the key, as in 123456/chat:7"
    ]
    assert cli.code == 1


def test_queue_and_bot_are_paused_and_resumed(cli: Cli) -> None:
    cli.append("1:1", "1/chat:7")
    cli.append("1:2", "1/chat:8", queue="shop.1")
    assert cli.said("pause", "queue", "shop.0") == ["paused shop.0"]
    assert ready(cli) == ["1:2"]
    assert cli.said("pause", "bot", "shop") == ["paused shop"]
    assert cli.said("resume", "queue", "shop.0") == ["resumed shop.0"]
    assert ready(cli) == []
    assert cli.said("resume", "bot", "shop") == ["resumed shop"]
    assert sorted(ready(cli)) == ["1:1", "1:2"]


def test_only_bot_needs_no_name_beside_its_broadcasts(cli: Cli) -> None:
    cli.app.conf.task_queues = [
        Queue("updates.express", queue_arguments=lanes.FIRST_QUEUE_ARGUMENTS),
        Queue("updates.0", queue_arguments=lanes.QUEUE_ARGUMENTS),
        Queue("broadcasts.0", queue_arguments=lanes.LAST_QUEUE_ARGUMENTS),
    ]
    assert cli.said("pause", "bot") == ["paused updates"]
    assert cli.said("resume", "bot") == ["resumed updates"]
    assert cli.said("pause", "bot", "broadcasts") == ["paused broadcasts"]
    assert cli.said("pause", "bot", "shop") == ["there is no bot shop: the bots are updates, broadcasts"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["pause", "queue", "shop.9"], "there is no lane queue shop.9: the queues are shop.0, shop.1, help.0"),
        (["pause", "bot"], "name one of the bots: shop, help"),
        (["resume", "bot", "shopp"], "there is no bot shopp: the bots are shop, help"),
    ],
)
def test_unknown_name_is_reported_with_the_known_ones(cli: Cli, arguments: list[str], sentence: str) -> None:
    assert cli.said(*arguments) == [sentence]
    assert cli.code == 1


def test_status_lists_pauses(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "RATE_OVER_S", 0.0)
    for number in range(2):
        cli.append(f"1:{number}", "1/chat:7")
    cli.said("pause", "chat", "1/chat:7")
    cli.said("pause", "bot", "shop")
    assert "1/chat:7        1  message, chat 7, update 1:0: paused; waiting for" in cli.text("status")
    pauses = [line for line in cli.said("status") if line.startswith("paused since")]
    assert [line.rpartition(": ")[2] for line in pauses] == ["group shop", "lane 1/chat:7"]
    assert json.loads(cli.text("status", "--json"))["paused_since_ms"].keys() == {"group:shop", "lane:1/chat:7"}
