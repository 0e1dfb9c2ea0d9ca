"""The context of a handler, and the destination of its replies."""

from dataclasses import replace
from typing import Any

import pytest

from chatlanes.bot.addressing import NoChatError
from chatlanes.bot.calls.run_calls import Calls
from chatlanes.bot.context import Context
from chatlanes.telegram.client import BotApi

ANN = {"id": 7}
PRIVATE = {"chat": {"id": 7}, "from": ANN, "text": "hello"}
GROUP = {"chat": {"id": -100}, "from": ANN}


def context(kind: str, body: Any, api: Any = None, attempt: int = 1) -> Context:
    return Context({"update_id": 12, kind: body}, api, attempt)


def test_fields_of_the_update():
    ctx = context("message", PRIVATE, attempt=3)
    assert (ctx.update_id, ctx.kind, ctx.chat_id, ctx.attempt) == (12, "message", 7, 3)
    assert ctx.update == {"update_id": 12, "message": PRIVATE}


def test_repr_contains_no_message_text():
    assert repr(context("message", PRIVATE)) == "Context(message 12, chat 7, attempt 1)"


def test_call_accepts_any_method(web, api):
    ctx = context("message", PRIVATE, api)
    assert ctx.call("sendDice", chat_id=ctx.chat_id, emoji="🎲") is True
    [asked] = web.asked
    assert asked.path.endswith("/sendDice")
    assert asked.json == {"chat_id": 7, "emoji": "🎲"}


WHERE = [
    ("message", PRIVATE, {"chat_id": 7}),
    ("message", GROUP, {"chat_id": -100}),
    ("message", {**GROUP, "message_thread_id": 5}, {"chat_id": -100}),
    ("message", {**GROUP, "message_thread_id": 5, "is_topic_message": True}, {"chat_id": -100, "message_thread_id": 5}),
    ("message", {**GROUP, "direct_messages_topic": {"topic_id": 9}}, {"chat_id": -100, "direct_messages_topic_id": 9}),
    ("business_message", {**PRIVATE, "business_connection_id": "b"}, {"chat_id": 7, "business_connection_id": "b"}),
    ("business_connection", {"id": "b", "user": ANN, "user_chat_id": 7}, {"chat_id": 7}),
    ("channel_post", {"chat": {"id": -300}}, {"chat_id": -300}),
    ("callback_query", {"from": ANN, "message": GROUP}, {"chat_id": -100}),
    (
        "callback_query",
        {"from": ANN, "message": {**GROUP, "message_thread_id": 5, "is_topic_message": True}},
        {"chat_id": -100, "message_thread_id": 5},
    ),
    (
        "callback_query",
        {"from": ANN, "message": {**PRIVATE, "business_connection_id": "b"}},
        {"chat_id": 7, "business_connection_id": "b"},
    ),
    ("callback_query", {"from": ANN, "inline_message_id": "i"}, {"chat_id": 7}),
    ("inline_query", {"id": "1", "from": ANN}, {"chat_id": 7}),
    ("pre_checkout_query", {"id": "1", "from": ANN}, {"chat_id": 7}),
    ("new_kind", GROUP, {"chat_id": -100}),
]


@pytest.mark.parametrize(("kind", "body", "where"), WHERE)
def test_reply_goes_to_the_place_of_the_update(web, api, kind, body, where):
    assert context(kind, body, api).reply("hi", protect_content=True) is True
    [asked] = web.asked
    assert asked.path.endswith("/sendMessage")
    assert asked.json == {**where, "text": "hi", "protect_content": True}


def test_explicit_reply_arguments_take_precedence(web, api):
    context("message", PRIVATE, api).reply("hi", chat_id=8)
    assert web.asked[0].json == {"chat_id": 8, "text": "hi"}


def test_guest_is_answered_through_the_query(web, api):
    ctx = context("guest_message", {**GROUP, "guest_query_id": "g"}, api)
    ctx.reply("hi" * 50, parse_mode="HTML", reply_markup={"inline_keyboard": []})
    [asked] = web.asked
    assert asked.path.endswith("/answerGuestQuery")
    assert asked.json == {
        "guest_query_id": "g",
        "result": {
            "type": "article",
            "id": "reply",
            "title": "hi" * 32,
            "reply_markup": {"inline_keyboard": []},
            "input_message_content": {"message_text": "hi" * 50, "parse_mode": "HTML"},
        },
    }


@pytest.mark.parametrize(
    ("kind", "body", "complaint"),
    [
        ("poll", {"id": "5"}, "an update of kind poll has no chat to reply to; name one with ctx.call"),
        ("guest_message", GROUP, "this guest_message has no guest_query_id"),
    ],
)
def test_reply_without_a_chat_is_refused(kind, body, complaint):
    with pytest.raises(NoChatError, match=complaint):
        context(kind, body).reply("hi")


def collected(*bodies: Any) -> Context:
    return Context([{"update_id": number, "message": body} for number, body in enumerate(bodies, 1)], None)


def test_one_update_is_the_only_one_of_its_run():
    ctx = context("message", PRIVATE)
    assert list(ctx.updates) == [ctx.update]
    assert (ctx.text, ctx.texts, ctx.photos) == ("hello", ["hello"], [])
    assert context("callback_query", {"from": ANN, "message": PRIVATE}).texts == []


def test_several_updates_are_answered_as_the_newest_and_read_together():
    small, large = {"file_id": "small"}, {"file_id": "large"}
    ctx = collected(
        {**PRIVATE, "message_id": 1, "text": "look"},
        {**PRIVATE, "message_id": 2, "text": None, "photo": [small, large], "caption": "a cat"},
        {**PRIVATE, "message_id": 3, "text": None, "document": {"file_id": "d"}, "photo": []},
        {**PRIVATE, "message_id": 4, "text": None, "voice": {"file_id": "v"}},
    )
    assert [update["update_id"] for update in ctx.updates] == [1, 2, 3, 4]
    assert (ctx.update_id, ctx.message["message_id"]) == (4, 4)
    assert [message["message_id"] for message in ctx.messages] == [1, 2, 3, 4]
    assert ctx.text == "look\na cat"
    assert ctx.texts == ["look", "a cat"]
    assert (ctx.photos, ctx.documents, ctx.voices) == ([large], [{"file_id": "d"}], [{"file_id": "v"}])
    assert (ctx.videos, ctx.audios) == ([], [])
    assert repr(ctx) == "Context(4 updates, message 4, chat 7, attempt 1)"


def test_a_copy_of_a_context_has_the_same_updates():
    ctx = replace(collected(PRIVATE, PRIVATE), attempt=2)
    assert (len(ctx.updates), ctx.update_id, ctx.attempt) == (2, 2, 2)


def test_a_handler_of_several_bots_knows_which_one_got_the_update() -> None:
    api = BotApi("http://127.0.0.1", "7001:SECRET")
    assert context("message", PRIVATE, api).bot_id == context("message", PRIVATE, Calls(api)).bot_id == 7001
    assert context("message", PRIVATE).bot_id is None
