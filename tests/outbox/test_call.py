"""A call of the outbox is checked where it is sent from, and gets the lane of its chat."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from chatlanes.outbox import SendError, call_of, settings_for
from chatlanes.settings import Settings, load
from tests.support.pipeline import BOT_ID, TOKEN

SETTINGS = Settings(bot_token=TOKEN)
LOOP: list[Any] = []
LOOP.append(LOOP)


def content_of(*call: Any, settings: Settings = SETTINGS, **params: Any) -> dict[str, Any]:
    made = call_of(settings, *call, None, params)
    body = bytes(made.message.stored).partition(b"\n")[2]
    content: dict[str, Any] = json.loads(body)[0][0]["send"]
    return content


def test_a_call_is_a_message_of_its_chat() -> None:
    call = call_of(SETTINGS, 7, "sendMessage", "a", {"text": "hi", "parse_mode": None})
    message = call.message
    assert (message.lanes, message.stoppable) == ([f"{BOT_ID}/chat:7"], False)
    assert message.queue.startswith("updates.")
    assert message.id.startswith(f"{BOT_ID}:send:")
    assert content_of(7, "sendMessage", text="hi", parse_mode=None) == {
        "method": "sendMessage",
        "params": {"chat_id": 7, "text": "hi"},
        "chat": {"id": 7},
    }


def test_a_key_gives_the_same_id_for_its_chat_only() -> None:
    def id_of(chat: int, once: str | None) -> str:
        return call_of(SETTINGS, chat, "sendMessage", once, {"text": "hi"}).id

    assert id_of(7, "a") == id_of(7, "a")
    assert len({id_of(7, "a"), id_of(7, "b"), id_of(8, "a"), id_of(7, None), id_of(7, None)}) == 5


@pytest.mark.parametrize(
    ("order_by", "chat", "params", "lane"),
    [
        ("chat", -5, {"message_thread_id": 3}, "chat:-5"),
        ("topic", -5, {"message_thread_id": 3}, "topic:-5:3"),
        ("topic", -5, {}, "chat:-5"),
        ("chat", 7, {"business_connection_id": "b"}, "business:b:7"),
        ("user", 7, {}, "user:7"),
        ("bot", 7, {}, "bot"),
    ],
)
def test_a_call_has_the_lane_of_the_updates_of_its_place(
    order_by: str, chat: int, params: dict[str, Any], lane: str
) -> None:
    settings = Settings(bot_token=TOKEN, order_by=order_by)
    call = call_of(settings, chat, "sendMessage", None, {"text": "hi", **params})
    assert call.message.lanes == [f"{BOT_ID}/{lane}"]


@pytest.mark.parametrize(
    ("method", "params", "has_chat"),
    [
        ("banChatMember", {"user_id": 5}, True),
        ("editMessageText", {"message_id": 5, "text": "hi"}, True),
        ("editMessageText", {"inline_message_id": "i", "text": "hi"}, False),
        ("sendGift", {"user_id": 5, "gift_id": "g"}, False),
        ("sendGift", {"gift_id": "g"}, True),
        ("setGameScore", {"user_id": 5, "score": 1, "message_id": 2}, True),
        ("answerCallbackQuery", {"callback_query_id": "q"}, False),
        ("kickChatMember", {"anything": 5}, False),
    ],
)
def test_the_chat_is_a_parameter_where_the_method_takes_it(method: str, params: dict[str, Any], has_chat: bool) -> None:
    assert ("chat_id" in content_of(7, method, **params)["params"]) is has_chat


@pytest.mark.parametrize(
    ("chat", "method", "params", "sentence"),
    [
        ("@news", "sendMessage", {}, "chat_id='@news': use the number of the chat, which names its lane"),
        (True, "sendMessage", {}, "chat_id=True: use the number"),
        (7, "sendMessage", {"chat_id": 8, "text": "hi"}, "chat_id=8: leave it out; the chat of a call is 7"),
        (7, "GetUpdates", {"offset": 9}, "getUpdates cannot be sent: it could confirm updates"),
        (7, "sendMesage", {}, "sendMesage is not a method of the Bot API 10.3; did you mean sendMessage?"),
        (7, None, {}, "method=None: use the name of a method, such as 'sendMessage'"),
        (7, "sendMessage", {}, "sendMessage needs text: pass it as a parameter"),
        (7, "sendMessage", {"txt": "hi"}, "sendMessage has no parameter txt in the Bot API 10.3; did you mean text?"),
        (
            7,
            "sendMessage",
            {"text": "hi", "zzz": 1},
            "no parameter zzz in the Bot API 10.3: a handler can pass a newer",
        ),
        (7, "sendPhoto", {"photo": b"x"}, "photo: a file is not stored with a call; pass its URL, or a file_id"),
        (7, "sendPhoto", {"photo": Path("x")}, "photo: a file is not stored"),
        (7, "sendMediaGroup", {"media": [{"media": io.BytesIO()}]}, "media: a file is not stored"),
        (7, "sendMessage", {"text": object()}, "text is not JSON: pass dicts, lists, texts and numbers"),
        (7, "sendMessage", {"text": float("nan")}, "text is not JSON"),
        (7, "sendMessage", {"text": LOOP}, "text is not JSON"),
        (7, "sendMessage", {"text": "x" * 2**20}, "the parameters of sendMessage take 1,048,579 bytes: send at most"),
    ],
)
def test_a_mistake_is_told_at_once(chat: Any, method: Any, params: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SendError) as raised:
        call_of(SETTINGS, chat, method, None, params)
    assert sentence in str(raised.value)


@pytest.mark.parametrize("once", ["", 17, b"a"])
def test_a_key_is_a_text(once: Any) -> None:
    with pytest.raises(SendError, match="use a text that identifies the call"):
        call_of(SETTINGS, 7, "sendMessage", once, {"text": "hi"})


@pytest.mark.parametrize(
    ("bot", "env", "sentence"),
    [
        ("shop", {"BOT_TOKEN": TOKEN}, "bot='shop': there is no such bot here; leave bot out: BOTS is not set"),
        (None, {}, "a call needs the token of its bot: "),
        (None, {"BOTS": "bots.toml"}, "there are several bots: pass bot= with one of shop, news"),
        ("x", {"BOTS": "bots.toml"}, "bot='x': there is no such bot here; use one of shop, news"),
        ("news", {"BOTS": "bots.toml"}, "[news] has no token: NEWS (token_env) is not set"),
    ],
)
def test_the_bot_must_be_configured(
    bot: str | None, env: dict[str, str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bots.toml").write_text('[shop]\ntoken_env = "SHOP"\n[news]\ntoken_env = "NEWS"\n')
    with pytest.raises(SendError) as raised:
        settings_for(bot, load({"SHOP": TOKEN, **env}, env_file=None))
    assert sentence in str(raised.value)


def test_a_bot_is_found_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "bots.toml").write_text('[shop]\ntoken_env = "SHOP"\n[news]\ntoken_env = "NEWS"\n')
    settings = load({"BOTS": str(tmp_path / "bots.toml"), "SHOP": TOKEN, "NEWS": "9:x"}, env_file=None)
    call = call_of(settings_for("news", settings), 7, "sendMessage", None, {"text": "hi"})
    assert (call.id.partition(":")[0], call.group, call.message.lanes) == ("9", "updates.news", ["9/chat:7"])
