"""The control interface as programs of any language use it: write as a user, read what the bot sent."""

from typing import Any

import pytest
import requests

from chatlanes_sandbox.simulator import NotSentError, Simulator
from tests.sandbox.calling import PATIENCE_S, BotClient

BUTTONS = {"inline_keyboard": [[{"text": "Yes", "callback_data": "y"}, {"text": "Site", "url": "https://a.example"}]]}


def control(simulator: Simulator, path: str, body: str | None = None) -> requests.Response:
    """As curl sends it."""
    url = f"{simulator.url}/control/{path}"
    return requests.get(url, timeout=PATIENCE_S) if body is None else requests.post(url, body, timeout=PATIENCE_S)


def test_a_conversation(simulator: Simulator, bot: BotClient) -> None:
    # When a user writes, then the bot gets it as from Telegram
    given = control(simulator, "messages", '{"chat_id": 7, "text": "/start now"}').json()
    assert bot.updates() == [given]
    message = given["message"]
    assert (message["message_id"], message["chat"]["type"], message["from"]["id"]) == (1, "private", 7)
    assert message["entities"] == [{"type": "bot_command", "offset": 0, "length": 6}]
    # When the bot answers, then the answer and its result are there, and the chat's ids continue
    bot.result("sendChatAction", chat_id=7, action="typing")
    asked = bot.result("sendMessage", chat_id=7, text="Sure?", reply_markup=BUTTONS)
    assert asked["message_id"] == 2
    [sent] = control(simulator, "messages").json()
    assert (sent["number"], sent["method"], sent["params"]["text"], sent["result"]) == (
        2,
        "sendMessage",
        "Sure?",
        asked,
    )
    assert control(simulator, "messages?after=2").json() == []
    # When the user presses a button, named by its text or its data
    for button in ("Yes", "y"):
        press = f'{{"chat_id": 7, "message_id": 2, "button": "{button}"}}'
        query = control(simulator, "presses", press).json()["callback_query"]
        assert (query["data"], query["message"], query["from"]["id"]) == ("y", asked, 7)
    assert bot.updates()[-1]["callback_query"] == query


def test_other_messages_and_groups(simulator: Simulator, bot: BotClient) -> None:
    photo = [{"file_id": "a", "file_unique_id": "a", "width": 1, "height": 1}]
    simulator.write(chat_id=-5, user_id=7, message={"photo": photo, "caption": "Look"})
    [update] = bot.updates()
    assert (update["message"]["chat"]["type"], update["message"]["from"]["id"]) == ("supergroup", 7)
    assert (update["message"]["photo"], update["message"]["caption"]) == (photo, "Look")
    # And a bot that did not ask for messages gets none
    bot.updates(allowed_updates=["poll"])
    assert simulator.write("hello") is None


MESSAGE_FIELDS = "the fields are chat_id, text, user_id, message"


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("messages", "{", "the body is not JSON: "),
        ("messages", "[]", f"chat_id must be given; {MESSAGE_FIELDS}"),
        ("messages", '{"chat": 7}', f"chat is unknown; {MESSAGE_FIELDS}"),
        ("messages", '{"chat_id": "7"}', "chat_id must be a whole number"),
        ("messages", '{"chat_id": true}', "chat_id must be a whole number"),
        ("messages", '{"chat_id": 7, "text": 1}', "text must be a string"),
        ("messages", '{"chat_id": 7, "message": "hi"}', "message must be an object"),
        ("messages", '{"chat_id": 7, "text": " "}', "an empty message cannot be sent: give text, or fields of "),
        ("messages", f'{{"chat_id": 7, "text": "{"x" * 4097}"}}', "a message has at most 4096 characters"),
        (
            "messages",
            '{"chat_id": -7, "text": "hi"}',
            "user_id must be above 0, and a group (a chat_id below 0) needs ",
        ),
        ("messages", '{"chat_id": 7, "user_id": 8, "text": "hi"}', "in a private chat user_id is the chat_id: leave "),
        ("presses", '{"chat_id": 7}', "message_id and button must be given; the fields are chat_id, message_id, "),
        ("presses", '{"chat_id": 7, "message_id": 9, "button": "Yes"}', "the message does not exist, or is not the "),
        (
            "presses",
            '{"chat_id": 7, "message_id": 1, "button": "Site"}',
            "the message has no button 'Site' with callback_data; its buttons: 'Yes'",
        ),
    ],
)
def test_a_wrong_request_is_refused_with_a_sentence(
    simulator: Simulator, bot: BotClient, path: str, body: str, sentence: str
) -> None:
    bot.result("sendMessage", chat_id=7, text="Sure?", reply_markup=BUTTONS)
    answer = control(simulator, path, body)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(sentence)
    assert bot.updates() == []


def test_a_wrong_number_of_a_call_is_refused(simulator: Simulator) -> None:
    answer = control(simulator, "messages?after=x")
    assert (answer.status_code, answer.json()["error"]) == (400, "after must be the number of a call")


def test_each_message_is_returned_once_and_waited_for(simulator: Simulator, bot: BotClient) -> None:
    for text in ("1", "2", "3"):
        bot.result("sendMessage", chat_id=7, text=text)
    bot.result("editMessageText", chat_id=7, message_id=1, text="one")
    assert texts(simulator.sent(2)) == ["1", "2"]
    assert texts(simulator.sent(method="editMessageText")) == ["one"]
    assert texts(simulator.sent()) == ["3"]
    assert bot("sendMessage", chat_id=7, text="").status_code == 400
    with pytest.raises(NotSentError) as raised:
        simulator.sent(timeout_s=0)
    assert str(raised.value) == (
        f"0 of 1 messages in 0 s. The bot has fetched no updates: it needs the address {simulator.url} and the token "
        "1:TEST; or its polling has ended with an error, which is in its log. "
        "sendMessage was refused: Bad Request: message text is empty"
    )
    bot.updates()
    with pytest.raises(NotSentError, match=r"The bot has called sendMessage, .*getUpdates; 0 updates wait\."):
        simulator.sent(timeout_s=0)


def texts(sent: list[dict[str, Any]]) -> list[str]:
    return [call["params"]["text"] for call in sent]
