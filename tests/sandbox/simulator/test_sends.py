"""Every method that sends answers with the object that Telegram answers with, as client libraries read it."""

from __future__ import annotations

import json
from types import GenericAlias, UnionType
from typing import TYPE_CHECKING, Any

import pytest
import requests
import telegram

from chatlanes.telegram.methods import METHODS
from chatlanes_sandbox.simulator import Simulator
from tests.sandbox.calling import PATIENCE_S, BotClient

if TYPE_CHECKING:
    from aiogram.types import Message

#: Importing aiogram takes seconds, so the tests do it.
pytestmark = pytest.mark.slow

BUTTONS = {"inline_keyboard": [[{"text": "More", "callback_data": "more"}, {"text": "Site", "url": "https://a.b"}]]}
FILE = {"file_id": "f", "file_unique_id": "f"}
PLACE = {"latitude": 1.5, "longitude": -2.5}
RICH = {"blocks": [{"type": "paragraph", "text": "hi"}]}
TASKS = {"title": "To do", "tasks": [{"id": 1, "text": "one"}]}
PAID_SHOWN = [{"type": "photo"}, {"type": "video", "video": {"file_id": "g"}}]
PAID = [{"type": "photo", "media": "f"}, {"type": "video", "media": "g"}]

#: Method -> parameters in addition to the chat, and fields that the message has at least.
SENDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sendMessage": (
        {"text": "<b>hi</b>", "parse_mode": "HTML"},
        {"text": "hi", "entities": [{"type": "bold", "offset": 0, "length": 2}]},
    ),
    "sendRichMessage": ({"rich_message": {"markdown": "hi"}}, {"rich_message": RICH}),
    "sendPhoto": ({"photo": "f", "caption": "/c"}, {"photo": [{**FILE, "width": 320}], "caption": "/c"}),
    "sendLivePhoto": ({"live_photo": "f", "photo": "g"}, {"live_photo": {**FILE, "duration": 1}}),
    "sendDocument": ({"document": "f"}, {"document": FILE}),
    "sendAnimation": ({"animation": "f", "width": 7}, {"animation": {**FILE, "width": 7}, "document": FILE}),
    "sendAudio": ({"audio": "f", "title": "T", "duration": "9"}, {"audio": {**FILE, "title": "T", "duration": 9}}),
    "sendVoice": ({"voice": "f"}, {"voice": {**FILE, "duration": 1}}),
    "sendVideo": ({"video": "f", "duration": 8}, {"video": {**FILE, "duration": 8, "width": 320}}),
    "sendVideoNote": ({"video_note": "f"}, {"video_note": {**FILE, "length": 240}}),
    "sendSticker": ({"sticker": "f", "emoji": "👍"}, {"sticker": {**FILE, "type": "regular", "emoji": "👍"}}),
    "sendDice": ({"emoji": "🎯"}, {"dice": {"emoji": "🎯"}}),
    "sendPoll": (
        {"question": "Q?", "options": ["a", {"text": "b"}], "type": "quiz", "correct_option_ids": [1]},
        {"poll": {"question": "Q?", "options": [{"text": "a"}, {"text": "b"}], "correct_option_ids": [1]}},
    ),
    "sendLocation": ({**PLACE, "live_period": 60}, {"location": {**PLACE, "live_period": 60}}),
    "sendVenue": ({**PLACE, "title": "T", "address": "A"}, {"venue": {"location": PLACE, "title": "T"}}),
    "sendContact": ({"phone_number": "1", "first_name": "A"}, {"contact": {"phone_number": "1", "first_name": "A"}}),
    "sendGame": ({"game_short_name": "g"}, {"game": {"title": "g"}}),
    "sendInvoice": (
        {"title": "T", "description": "D", "payload": "p", "currency": "XTR", "prices": [{"label": "a", "amount": 5}]},
        {"invoice": {"title": "T", "currency": "XTR", "total_amount": 5}},
    ),
    "sendChecklist": ({"checklist": TASKS, "business_connection_id": "b"}, {"checklist": TASKS}),
    "sendPaidMedia": (
        {"star_count": 3, "media": PAID},
        {
            "paid_media": {
                "star_count": 3,
                "paid_media": [{"type": "photo"}, {"type": "video", "video": {"file_id": "g"}}],
            }
        },
    ),
    "forwardMessage": ({"from_chat_id": 6, "message_id": 4}, {"forward_origin": {"type": "user"}}),
}


def holds(whole: Any, part: Any) -> bool:
    """True if `whole` has the values of `part`, at any depth."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(holds(whole.get(name), value) for name, value in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and len(whole) == len(part) and all(map(holds, whole, part))
    return bool(whole == part)


def read(message: dict[str, Any]) -> Message:
    """As both libraries read it; they insist on what a kind must have."""
    assert telegram.Message.de_json(message, None).message_id == message["message_id"]
    return read_as("Message", message)


def read_as(kind: str, found: dict[str, Any]) -> Any:
    """As aiogram reads it."""
    from aiogram import types

    return getattr(types, kind).model_validate(found)


def test_all_methods_that_client_libraries_know_are_here() -> None:
    from aiogram import methods
    from aiogram.types import Message

    theirs = {name: getattr(methods, name) for name in methods.__all__}
    returning = {name[0].lower() + name[1:]: vars(each).get("__returning__") for name, each in theirs.items()}
    returning = {
        name: returned for name, returned in returning.items() if isinstance(returned, (type, GenericAlias, UnionType))
    }
    assert {name.lower() for name in returning} <= set(METHODS)
    sends = {name for name, returned in returning.items() if returned is Message}
    assert {name for name in sends if name.startswith(("send", "forward"))} == set(SENDS)


@pytest.mark.parametrize("method", SENDS)
def test_a_send_returns_the_sent_message(bot: BotClient, method: str) -> None:
    params, expected = SENDS[method]
    sent = bot.result(method, chat_id=5, **params)
    assert holds(sent, expected), sent
    read(sent)
    # And the same for parameters as a form has them
    form = {name: value if isinstance(value, str) else json.dumps(value) for name, value in params.items()}
    url = f"{bot.simulator.url}/bot{bot.simulator.token}/{method}"
    answer = requests.post(url, data={"chat_id": "5", **form}, timeout=PATIENCE_S).json()
    assert holds(answer["result"], expected), answer


def test_a_die_has_a_value(bot: BotClient) -> None:
    values = {read(bot.result("sendDice", chat_id=5, emoji="⚽")).dice.value for _ in range(100)}  # type: ignore[union-attr]
    assert values == {1, 2, 3, 4, 5}


def test_buttons_replies_and_topics_are_in_the_answer(bot: BotClient) -> None:
    asked = bot.result("sendMessage", chat_id=-100, text="Well?", reply_markup=BUTTONS, message_thread_id=3)
    assert asked["reply_markup"] == BUTTONS
    assert (asked["message_thread_id"], asked["is_topic_message"]) == (3, True)
    reply = bot.result(
        "sendDice", chat_id=-100, reply_parameters={"message_id": asked["message_id"]}, protect_content=True
    )
    assert reply["reply_to_message"] == asked
    assert reply["has_protected_content"]
    assert read(reply).reply_to_message.reply_markup  # type: ignore[union-attr]
    # A message of a user is known by its id only
    other = bot.result("sendMessage", chat_id=-100, text="hi", reply_to_message_id=77)
    assert read(other).reply_to_message.message_id == 77  # type: ignore[union-attr]
    # Keyboards under the input field are not part of a message
    keyboard = {"keyboard": [[{"text": "Yes"}]]}
    assert "reply_markup" not in bot.result("sendMessage", chat_id=-100, text="hi", reply_markup=keyboard)


def test_uploads_and_albums(bot: BotClient, simulator: Simulator) -> None:
    url = f"{simulator.url}/bot{simulator.token}"
    data = {"chat_id": "5", "media": json.dumps([{"type": "document", "media": "attach://x", "caption": "c"}])}
    [item] = requests.post(f"{url}/sendMediaGroup", data=data, files={"x": ("a.txt", b"123")}, timeout=10).json()[
        "result"
    ]
    assert item["media_group_id"]
    assert (item["document"]["file_name"], item["document"]["file_size"], item["caption"]) == ("a.txt", 3, "c")
    read(item)
    assert bot.result("getFile", file_id=item["document"]["file_id"])["file_path"]


def test_edits_copies_and_forwards_keep_the_content(bot: BotClient) -> None:
    sent = bot.result("sendPhoto", chat_id=5, photo="f", caption="c", reply_markup=BUTTONS)
    where = {"chat_id": 5, "message_id": sent["message_id"]}
    edited = bot.result("editMessageCaption", **where, caption="d")
    assert (edited["caption"], edited["photo"], "reply_markup" in edited) == ("d", sent["photo"], False)
    assert read(edited).edit_date
    assert bot.result("editMessageReplyMarkup", **where, reply_markup=BUTTONS)["reply_markup"] == BUTTONS
    forwarded = bot.result("forwardMessage", chat_id=6, from_chat_id=5, message_id=sent["message_id"])
    assert (forwarded["caption"], forwarded["photo"]) == ("d", sent["photo"])
    poll = bot.result("sendPoll", chat_id=5, question="Q?", options=["a"])
    stopped = read_as("Poll", bot.result("stopPoll", chat_id=5, message_id=poll["message_id"]))
    assert (stopped.question, stopped.is_closed) == ("Q?", True)


def test_chats_and_members(bot: BotClient) -> None:
    for chat in (5, -100, "@news"):
        read_as("ChatFullInfo", bot.result("getChat", chat_id=chat))
    read_as("ChatMemberMember", bot.result("getChatMember", chat_id=5, user_id=5))
