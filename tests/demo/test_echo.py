"""The default bot, loaded by the default BOT, against the simulated Bot API."""

from collections.abc import Iterator
from typing import Any

import pytest

from chatlanes.bot.context import Context
from chatlanes.bot.loader import load_bot
from chatlanes.settings import load
from chatlanes.telegram.client import BotApi
from chatlanes_sandbox.simulator import Simulator, start

CHAT = {"chat": {"id": 7, "type": "private"}, "from": {"id": 7, "is_bot": False, "first_name": "Ann"}, "message_id": 1}
POLITE = "I can only repeat text. Send me some!"


@pytest.fixture(scope="module")
def telegram() -> Iterator[Simulator]:
    with start() as telegram:
        yield telegram


@pytest.mark.parametrize(
    ("kind", "body", "calls"),
    [
        ("message", {**CHAT, "text": "hello"}, [("sendMessage", {"chat_id": 7, "text": "hello"})]),
        ("message", {**CHAT, "sticker": {}}, [("sendMessage", {"chat_id": 7, "text": POLITE})]),
        ("message", {**CHAT, "new_chat_title": "x"}, []),
        ("my_chat_member", CHAT, []),
        ("poll", {"id": "1"}, []),
        (
            "callback_query",
            {"id": "99", "from": CHAT["from"], "message": CHAT, "data": "x"},
            [("answerCallbackQuery", {"callback_query_id": "99", "text": "Thank you."})],
        ),
        (
            "inline_query",
            {"id": "98", "from": CHAT["from"], "query": "x", "offset": ""},
            [("answerInlineQuery", {"inline_query_id": "98", "results": []})],
        ),
    ],
)
def test_calls_for_each_kind(telegram: Simulator, kind: str, body: Any, calls: list[Any]):
    telegram.reset()
    api = BotApi(telegram.url, telegram.token)
    handle = load_bot(load(env={}, env_file=None).bot)
    handle(Context({"update_id": 1, kind: body}, api))
    api.close()
    assert [(call["method"].lower(), call["params"]) for call in telegram.calls()] == [
        (method.lower(), params) for method, params in calls
    ]
    assert all(call["ok"] for call in telegram.calls())
