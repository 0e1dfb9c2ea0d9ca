"""lanes chat: everything about one chat."""

from __future__ import annotations

import re
from typing import Any

import pytest

from celery_lanes.protocol import Kind, NewMessage
from chatlanes.cli.context import BotContext
from chatlanes.settings import Settings
from tests.cli.conftest import Cli


def test_chat_is_shown_with_all_its_messages(cli: Cli) -> None:
    # Given a chat with an update in its second run after a call, two waiting updates, and a buried one
    cli.bury("1:9", "1/chat:7")
    cli.append("1:10", "1/chat:7")
    [(_, fence)] = cli.take()
    cli.store.retry("1:10", fence, delay_ms=-1, problem={"type": "ValueError", "message": "no\nprice"})
    cli.store.sweep(60_000)
    [(_, fence)] = cli.take()
    cli.store.begin("1:10", fence, lease_ms=60_000, position="1", what="sendMessage:abc")
    cli.store.end("1:10", fence, position="1", what="sendMessage:abc", kind=Kind.DONE, outcome=b'{"secret": 1}')
    cli.append("1:11", "1/chat:7")
    cli.append("1:99", "1/chat:77")
    cli.client.set("session:1/chat:7", '{"cart": [3]}', ex=7200)
    # When the chat is shown
    text = cli.text("chat", "7")
    # Then the updates of its lane are listed, with the state of the first
    assert "1/chat:7: 2 in the lane\n" in text
    assert "1:10  message, chat 7, update 1:10  runs on east:4711 for" in text
    assert "attempt 2" in text
    assert "1:11  message, chat 7, update 1:11  waiting" in text
    assert "1:99" not in text
    # And its last errors, its calls, its session without content, and the number of buried updates
    assert "ValueError: no price" in text
    assert "  call 1 sendMessage: done\n" in text
    assert "secret" not in text
    assert "session:1/chat:7: 13 bytes, for 2.0 h more\n" in text
    assert "cart" not in text
    assert "1 buried: lanes dead list --chat 7\n" in text
    # And the session's content on request
    assert '"cart": [' in cli.text("chat", "7", "--content")


def test_reason_of_a_delay_is_shown(cli: Cli) -> None:
    cli.append("1:10", "1/chat:7")
    [(_, fence)] = cli.take()
    cli.store.park("1:10", fence, delay_ms=60_000, kind="Unknown", reason="no worker\nknows bot 1")
    assert re.search(r"delayed 0\.\d s ago: no worker knows bot 1\n", cli.text("chat", "7"))


def test_paused_chat_is_marked_even_if_empty(cli: Cli) -> None:
    cli.said("pause", "chat", "1/chat:7")
    assert cli.said("chat", "7")[0].startswith("1/chat:7: 0 in the lane, paused since 20")


def test_long_lane_is_truncated(cli: Cli) -> None:
    for number in range(25):
        cli.append(f"1:{number}", "1/chat:7")
    assert "and 5 more" in cli.said("chat", "1/chat:7")


def test_empty_chat(cli: Cli) -> None:
    assert cli.said("chat", "7*") == ["7* has no waiting, running or buried updates, no session and no timers"]
    assert cli.code == 0


def bot_with(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    monkeypatch.setattr(BotContext, "bots", lambda _: (Settings(bot_token="1:A", **settings),))
    monkeypatch.setattr(BotContext, "bot_ids", {1: "shop"})


def test_groups_have_negative_numbers(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    bot_with(monkeypatch)
    cli.bury("1:9", "1/chat:-1001234")
    assert cli.said("chat", "-1001234") == ["1 buried: lanes dead list --chat -1001234"]
    assert cli.said("pause", "chat", "-1001234", "--bot", "shop") == ["paused 1/chat:-1001234"]
    assert cli.said("resume", "chat", "--bot", "shop", "-1001234") == ["resumed 1/chat:-1001234"]
    assert "No such option '--contnet'. Did you mean '--content'?" in cli.said("chat", "7", "--contnet")[-1]


@pytest.mark.parametrize("words", ["chat foo", "pause chat foo", "dead list --chat foo", "timers list --chat @ann"])
def test_what_cannot_be_a_chat_is_refused(cli: Cli, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    bot_with(monkeypatch)
    assert "is neither the number of a chat nor the key of a lane, such as user:7" in cli.said(*words.split())[-1]
    assert cli.code == 2
    # With keys of the user's own it may be one
    bot_with(monkeypatch, order_by="mybot:keys")
    cli.said(*words.split())
    assert cli.code == 0


@pytest.mark.parametrize(
    ("order_by", "chat", "sentence"),
    [
        ("user", "7", "with ORDER_BY=user each user has a lane: give it, as in user:7"),
        ("user", "-7", "with ORDER_BY=user each user has a lane: give it, as in user:123456"),
        ("topic", "-7", "with ORDER_BY=topic each topic has a lane: give chat:-7, or a topic, as in topic:-7:3"),
        ("bot", "7", "with ORDER_BY=bot all chats are in one lane: give its key, bot"),
        ("a:b", "7", "with ORDER_BY=a:b give the key of a lane, with the id of the bot, as in 123456/customer:9"),
    ],
)
def test_number_of_a_chat_without_a_lane_of_its_own_cannot_be_paused(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, order_by: str, chat: str, sentence: str
) -> None:
    bot_with(monkeypatch, order_by=order_by)
    for word in ("pause", "resume"):
        assert cli.said(word, "chat", chat) == [sentence]
        assert cli.code == 1
    assert (cli.said("chat", chat) == [sentence]) == (order_by in ("bot", "a:b"))


def test_key_without_a_kind_is_taken_as_it_is(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    bot_with(monkeypatch, order_by="bot")
    cli.append("1:1", "1/bot")
    assert cli.said("pause", "chat", "bot") == ["paused 1/bot"]
    assert cli.said("chat", "bot")[0].startswith("1/bot: 1 in the lane, paused since ")
    bot_with(monkeypatch, order_by="chat+user")
    assert cli.said("pause", "chat", "7") == ["paused 1/chat:7"]


def test_the_next_timers_of_the_chat_are_shown(cli: Cli) -> None:
    for number in range(8):
        message = NewMessage("1:timer:", "shop.0", b"{}\n", ["1/chat:7"])
        cli.store.schedule(message, "1/chat:7", f"t{number}", in_ms=7_200_000 + number * 3_600_000)
    cli.store.schedule(NewMessage("1:timer:", "shop.0", b"{}\n", ["1/chat:77"]), "1/chat:77", "x", in_ms=7_200_000)
    lines = cli.said("chat", "7")
    assert [re.sub(r"20\d\S+ \S+ UTC", "…", line) for line in lines] == [
        "timer t0: due …, in 120 min",
        *(f"timer t{number}: due …, in {number + 2} h" for number in range(1, 5)),
        "and 3 more timers: lanes timers list --chat 7",
    ]
