"""The simulator answers methods as Telegram does, and records its calls."""

import re
import subprocess
import sys

import pytest
import requests
from telegram import ForumTopic

from chatlanes_sandbox.simulator import Simulator
from chatlanes_sandbox.simulator.client import READY
from tests.sandbox.calling import PATIENCE_S, BotClient, ended_when_late, text_update, wait_until
from tests.support import ROOT

LONG = "x" * 4097
ALBUM = [{"type": "photo", "media": "a"}, {"type": "video", "media": "b"}]

BUTTON = {"text": "Yes", "callback_data": "y"}
FIELD = 'field "inline_keyboard" of the InlineKeyboardMarkup'
CANNOT = "can't parse inline keyboard button"


def test_get_me_is_the_bot_of_the_token(bot: BotClient) -> None:
    me = bot.result("getMe")
    assert (me["id"], me["is_bot"]) == (1, True)


@pytest.mark.slow
def test_the_documented_token_is_that_of_a_simulator_started_by_hand() -> None:
    tokens = set(re.findall(r"\b\d+:[A-Z]+\b", (ROOT / "docs/sandbox.md").read_text()))
    command = [sys.executable, "-m", "chatlanes_sandbox.simulator", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as by_hand, ended_when_late(by_hand):
        assert by_hand.stdout
        url = by_hand.stdout.readline().removeprefix(READY).strip()
        answers = {token: requests.get(f"{url}/bot{token}/getMe", timeout=PATIENCE_S).status_code for token in tokens}
        by_hand.terminate()
    assert answers == {"1:SIMULATED": 200}


@pytest.mark.parametrize(
    ("path", "status", "description"),
    [
        ("/bot1:OTHER/getMe", 401, "Unauthorized"),
        ("/bot1:TES/getMe", 401, "Unauthorized"),
        ("/botTEST/getMe", 404, "Not Found"),
        ("/bot1:/getMe", 404, "Not Found"),
        ("/bot1:TEST/sendMesage", 404, "Not Found: method not found"),
        ("/bot1:TEST", 404, "Not Found"),
        ("/elsewhere", 404, "Not Found"),
    ],
)
def test_wrong_addresses(simulator: Simulator, path: str, status: int, description: str) -> None:
    response = requests.get(simulator.url + path, timeout=10)
    assert response.status_code == status
    assert response.json() == {"ok": False, "error_code": status, "description": description}


def test_a_message_gets_an_id_that_grows_per_chat(bot: BotClient) -> None:
    sent = [bot.result("sendMessage", chat_id=chat, text="hi") for chat in (5, 5, -100)]
    assert [message["message_id"] for message in sent] == [1, 2, 1]
    assert [message["chat"]["type"] for message in sent] == ["private", "private", "supergroup"]
    assert sent[0]["text"] == "hi"


@pytest.mark.parametrize(
    ("method", "params", "description"),
    [
        ("sendMessage", {"text": "hi"}, "chat_id is empty"),
        ("sendMessage", {"chat_id": "", "text": "hi"}, "chat_id is empty"),
        ("sendPhoto", {"photo": "id"}, "chat_id is empty"),
        ("sendPhoto", {"chat_id": 5}, "there is no photo in the request"),
        (
            "sendMessage",
            {"chat_id": 5, "text": "x", "parse_mode": "no"},
            "unsupported parse_mode",
        ),
        ("sendDice", {"chat_id": 5, "emoji": "x"}, "DICE_EMOJI_INVALID"),
        ("sendChatAction", {"action": "typing"}, "chat_id is empty"),
        ("sendChatAction", {"chat_id": 5, "action": "thinking"}, "wrong parameter action in request"),
        ("sendChatAction", {"chat_id": 5, "action": ["typing"]}, "wrong parameter action in request"),
        ("sendMessage", {"chat_id": "None", "text": "hi"}, "chat not found"),
        ("sendPhoto", {"chat_id": 5, "photo": "id", "caption": "x" * 1025}, "message caption is too long"),
        (
            "sendMediaGroup",
            {"chat_id": 5, "media": [{**ALBUM[0], "caption": "x" * 1025}]},
            "message caption is too long",
        ),
        ("sendMessage", {"chat_id": 5}, "message text is empty"),
        ("sendMessage", {"chat_id": 5, "text": " \n"}, "message text is empty"),
        ("sendMessage", {"chat_id": 5, "text": LONG}, "message is too long"),
        ("editMessageText", {"chat_id": 5, "message_id": 1, "text": LONG}, "message is too long"),
        ("editMessageText", {"chat_id": 5, "text": "hi"}, "message identifier is not specified"),
        ("deleteMessage", {"chat_id": 5}, "message identifier is not specified"),
        ("deleteMessage", {"chat_id": 5, "message_id": 3}, "message to delete not found"),
        ("editMessageText", {"chat_id": 5, "message_id": 3, "text": "hi"}, "message to edit not found"),
        ("answerCallbackQuery", {}, 'parameter "callback_query_id" is required'),
    ],
)
def test_invalid_calls_are_refused(bot: BotClient, method: str, params: dict[str, object], description: str) -> None:
    response = bot(method, **params)
    assert response.status_code == 400
    assert response.json() == {"ok": False, "error_code": 400, "description": f"Bad Request: {description}"}


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("sendChatAction", {"chat_id": 5, "action": "typing"}, True),
        ("answerCallbackQuery", {"callback_query_id": "1"}, True),
        ("deleteMessages", {"chat_id": 5, "message_ids": [3]}, True),
        ("editMessageText", {"inline_message_id": "x", "text": "hi"}, True),
        ("pinChatMessage", {"chat_id": 5, "message_id": 3}, True),
        ("setMyCommands", {"commands": []}, True),
        ("banChatMember", {"chat_id": 5, "user_id": 6}, True),
        ("copyMessage", {"chat_id": 5, "from_chat_id": 6, "message_id": 3}, {"message_id": 1}),
        (
            "forwardMessages",
            {"chat_id": 5, "from_chat_id": 6, "message_ids": "[3, 4]"},
            [{"message_id": 1}, {"message_id": 2}],
        ),
        ("getChatMemberCount", {"chat_id": 5}, 2),
    ],
)
def test_other_methods_have_a_plausible_result(
    bot: BotClient, method: str, params: dict[str, object], expected: object
) -> None:
    assert bot.result(method, **params) == expected


def test_edits_albums_and_chats_answer_with_their_objects(bot: BotClient) -> None:
    bot.result("sendMessage", chat_id=5, text="old")
    edited = bot.result("editMessageText", chat_id=5, message_id=1, text="new")
    assert (edited["message_id"], edited["text"], edited["chat"]["id"]) == (1, "new", 5)
    assert [m["message_id"] for m in bot.result("sendMediaGroup", chat_id=5, media=ALBUM)] == [2, 3]
    assert bot.result("getChat", chat_id="@news")["username"] == "news"


def test_a_message_changes_and_ends_once(bot: BotClient, simulator: Simulator) -> None:
    # Given a message of the bot, and one of a user
    bot.result("sendMessage", chat_id="@news", text="<b>hi</b>", parse_mode="HTML")
    chat = bot.result("getChat", chat_id="@news")["id"]
    simulator.push({"message": {"message_id": 7, "date": 0, "chat": {"id": chat, "type": "channel"}, "text": "x"}})
    entities = [{"type": "bold", "offset": 0, "length": 2}]
    changes = [
        ("editMessageText", {"message_id": 1, "text": "hi", "entities": entities}),
        ("editMessageText", {"message_id": 1, "text": "ho"}),
        ("editMessageText", {"message_id": 1, "text": "ho"}),
        ("deleteMessage", {"message_id": 1}),
        ("deleteMessage", {"message_id": 1}),
        ("editMessageText", {"message_id": 1, "text": "hi"}),
        ("deleteMessage", {"message_id": 7}),
        ("deleteMessage", {"message_id": 7}),
    ]
    answers = [bot(method, chat_id=chat, **params).json().get("description", "done") for method, params in changes]
    assert [answer.removeprefix("Bad Request: message ").partition(":")[0] for answer in answers] == [
        *("is not modified", "done", "is not modified", "done", "to delete not found", "to edit not found"),
        *("done", "to delete not found"),
    ]


@pytest.mark.parametrize(
    ("markup", "description"),
    [
        ("{'inline_keyboard': []}", "can't parse reply keyboard markup JSON object"),
        ("[]", "object expected as reply markup"),
        (
            {"inline_keyboard": [BUTTON]},
            'field "inline_keyboard" of the InlineKeyboardMarkup must be an Array of Arrays',
        ),
        ({"inline_keyboard": [["Yes"]]}, f"{CANNOT}: InlineKeyboardButton must be an Object"),
        ({"inline_keyboard": [[{"callback_data": "y"}]]}, f'{CANNOT}: Can\'t find field "text"'),
        ({"inline_keyboard": [[{"text": "Yes"}]]}, f"{CANNOT}: Text buttons are unallowed in the inline keyboard"),
        (
            {"inline_keyboard": [[{"text": "Yes", "callback_data": ""}]]},
            f"{CANNOT}: Text buttons are unallowed in the inline keyboard",
        ),
        ({"inline_keyboard": [[{"text": "Yes", "callback_data": "é" * 33}]]}, "BUTTON_DATA_INVALID"),
        ({"inline_keyboard": [[{"text": "Yes", "callback_data": "é" * 32}, {**BUTTON, "url": None}]]}, "done"),
        ({"inline_keyboard": [[{"text": "Share", "switch_inline_query": ""}]]}, "done"),
        ({"keyboard": [["Yes"], [{"text": "No"}]]}, "done"),
        ({"remove_keyboard": True}, "done"),
        ("", "done"),
    ],
)
def test_buttons_that_telegram_refuses_are_refused(bot: BotClient, markup: object, description: str) -> None:
    answer = bot("sendMessage", chat_id=5, text="hi", reply_markup=markup).json()
    assert answer.get("description", "done").removeprefix("Bad Request: ") == description


def test_a_text_is_as_long_as_it_is_shown(bot: BotClient) -> None:
    shown = bot.result("sendMessage", chat_id=5, text=f"<b>{'x' * 4096}</b>", parse_mode="HTML")
    assert len(shown["text"]) == 4096
    refused = bot("sendMessage", chat_id=5, text="<b></b>", parse_mode="HTML").json()
    assert refused["description"] == "Bad Request: message text is empty"


def test_what_telegram_does_not_edit_is_refused(bot: BotClient, simulator: Simulator) -> None:
    # Given a message of a user, one of the bot, and a photo of the bot, in a chat; and a pressed button
    simulator.write("mine", chat_id=5)
    bot.result("sendMessage", chat_id=5, text="yours")
    bot.result("sendPhoto", chat_id=5, photo="id")
    asked = {"message_id": 9, "date": 0, "chat": {"id": 5, "type": "private"}, "from": {"id": 5, "is_bot": False}}
    simulator.push({"callback_query": {"id": "1", "message": {**asked, "text": "Yes?"}, "data": "y"}})
    edits = [
        ("editMessageText", {"message_id": 1, "text": "new"}),
        ("editMessageReplyMarkup", {"message_id": 1}),
        ("editMessageText", {"message_id": 3, "text": "new"}),
        ("editMessageCaption", {"message_id": 2, "caption": "new"}),
        ("editMessageCaption", {"message_id": 3, "caption": "new"}),
        ("editMessageText", {"message_id": 9, "text": "new"}),
    ]
    answers = [bot(method, chat_id=5, **params).json().get("description", "done") for method, params in edits]
    assert [answer.removeprefix("Bad Request: ") for answer in answers] == [
        *("message can't be edited", "message can't be edited"),
        "there is no text in the message to edit",
        "there is no caption in the message to edit",
        *("done", "done"),
    ]
    # A bot of a business edits the messages of its owner
    assert (
        bot.result("editMessageText", chat_id=5, message_id=1, text="new", business_connection_id="c")["text"] == "new"
    )


def test_a_forum_topic_is_made(bot: BotClient) -> None:
    topics = [bot.result("createForumTopic", chat_id=-100, name=name) for name in ("a", "b")]
    assert [ForumTopic.de_json(topic, None).name for topic in topics] == ["a", "b"]
    assert len({topic["message_thread_id"] for topic in topics}) == 2


def test_upper_and_lower_case_are_the_same(bot: BotClient, simulator: Simulator) -> None:
    assert bot.result("SENDmessage", chat_id=5, text="hi")["text"] == "hi"
    assert [call["method"] for call in simulator.calls()] == ["sendMessage"]


def test_parameters_come_as_query_form_json_or_multipart(simulator: Simulator, bot: BotClient) -> None:
    url, params = f"{simulator.url}/bot1:TEST/sendPhoto", {"chat_id": "5"}
    requests.get(url, params={**params, "photo": "id"}, timeout=10).raise_for_status()
    requests.post(url, data={**params, "photo": "id"}, timeout=10).raise_for_status()
    requests.post(url, json={"chat_id": 5, "photo": "id"}, timeout=10).raise_for_status()
    requests.post(url, data=params, files={"photo": ("a.jpg", b"123")}, timeout=10).raise_for_status()
    assert [call["params"] for call in simulator.calls("sendPhoto")] == [
        {"chat_id": "5", "photo": "id"},
        {"chat_id": "5", "photo": "id"},
        {"chat_id": 5, "photo": "id"},
        {"chat_id": "5", "photo": {"file": "a.jpg", "bytes": 3}},
    ]


def test_a_body_that_is_not_json_is_refused(simulator: Simulator) -> None:
    kind = {"Content-Type": "application/json"}
    response = requests.post(f"{simulator.url}/bot1:TEST/getMe", data="{oops", headers=kind, timeout=10)
    assert response.status_code == 400


def test_calls_are_recorded_in_order_with_their_success(simulator: Simulator, bot: BotClient) -> None:
    bot("sendMessage", chat_id=5, text="hi")
    bot("sendMessage", chat_id=5, text="")
    bot("getUpdates")
    calls = simulator.calls()
    assert [(call["method"], call["ok"]) for call in calls] == [("sendMessage", True), ("sendMessage", False)]
    assert calls[0]["at"] <= calls[1]["at"]
    assert simulator.stats()["calls"] == {"sendMessage": 2, "getUpdates": 1}


def test_a_webhook_is_remembered(simulator: Simulator, bot: BotClient) -> None:
    none = {"url": "", "has_custom_certificate": False, "pending_update_count": 1}
    simulator.push(text_update())
    assert bot.result("getWebhookInfo") == none
    bot.result("setWebhook", url="https://example.org/hook", max_connections=7)
    wait_until(lambda: "last_error_date" in bot.result("getWebhookInfo"))
    info = bot.result("getWebhookInfo")
    assert info.pop("last_error_date") > 0
    assert info == {
        **none,
        "url": "https://example.org/hook",
        "max_connections": 7,
        "ip_address": "127.0.0.1",
        "last_error_message": "the simulator sends to this machine only",
    }
    bot.result("deleteWebhook", drop_pending_updates=True)
    assert bot.result("getWebhookInfo") == {**none, "pending_update_count": 0}


def test_calls_are_numbered(simulator: Simulator, bot: BotClient) -> None:
    for text in ("one", "two", "three"):
        bot("sendMessage", chat_id=5, text=text)
    bot("getMe")

    assert [(call["number"], call["params"]["text"]) for call in simulator.calls("sendMessage", after=1)] == [
        (2, "two"),
        (3, "three"),
    ]
    assert [call["method"] for call in simulator.calls(after=3)] == ["getMe"]
    assert simulator.calls(after=4) == []


def test_every_file_id_has_a_file(simulator: Simulator, bot: BotClient) -> None:
    found = bot.result("getFile", file_id="a cat")
    response = requests.get(f"{simulator.url}/file/bot{simulator.token}/{found['file_path']}", timeout=PATIENCE_S)
    assert (response.status_code, response.content) == (200, b"the content of a cat\n")
    assert found["file_size"] == len(response.content)
    wrong = requests.get(f"{simulator.url}/file/bot1:no/{found['file_path']}", timeout=PATIENCE_S)
    assert wrong.status_code == 404


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}],
)
@pytest.mark.parametrize("path", ["/control/stats", "/bot1:TEST/getMe", "/file/bot1:TEST/files/x"])
def test_without_its_page_too_it_answers_no_foreign_page(
    simulator: Simulator, path: str, headers: dict[str, str]
) -> None:
    assert requests.get(simulator.url + path, headers=headers, timeout=PATIENCE_S).status_code == 403
    assert requests.get(simulator.url + path, timeout=PATIENCE_S).status_code == 200


NUL, NO_TEXT, HUGE = "%00", "%ff%fe", "9" * 30


@pytest.mark.parametrize("path", [f"/file/bot{NO_TEXT}/files/x", f"/file/bot{NUL}/files/x", "/bot1:%C3%A9/getMe"])
def test_odd_bytes_in_an_address_are_not_found(simulator: Simulator, path: str) -> None:
    assert requests.get(simulator.url + path, timeout=PATIENCE_S).status_code in (401, 404)


@pytest.mark.parametrize(
    "params",
    [{"chat_id": 1e300}, {"chat_id": 5, "reply_markup": {"inline_keyboard": [[{"url": "[" * 500 + "]" * 500}]]}}],
)
def test_odd_values_get_an_answer_of_the_bot_api(bot: BotClient, params: dict[str, object]) -> None:
    assert "ok" in bot("sendMessage", text="hi", **params).json()
