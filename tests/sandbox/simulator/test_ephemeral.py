"""Ephemeral messages: one member of a group sees them, and they have ids of their own."""

from typing import Any

import pytest

from chatlanes_sandbox.simulator import Simulator, SimulatorFailedError
from chatlanes_sandbox.simulator.examples import examples
from tests.sandbox.calling import BotClient

GROUP, ANN, BEN = -5, 7, 8
TO_ANN = {"receiver_user_id": ANN}
YES = {"inline_keyboard": [[{"text": "Yes", "callback_data": "y"}]]}


def refused(bot: BotClient, method: str, **params: Any) -> str:
    answer = bot(method, chat_id=GROUP, **params)
    assert answer.status_code == 400, answer.text
    return str(answer.json()["description"]).removeprefix("Bad Request: ")


def send(bot: BotClient, text: str = "Your balance: 3", **params: Any) -> dict[str, Any]:
    ephemeral = {"ephemeral_message_parameters": TO_ANN, **params}
    return dict(bot.result("sendMessage", chat_id=GROUP, text=text, **ephemeral))


@pytest.mark.slow
def test_it_is_sent_edited_and_deleted_by_its_own_id(bot: BotClient) -> None:
    from aiogram.types import Message

    # When a bot sends one, then the answer has message_id 0, an id, and the receiver
    sent = send(bot)
    named = {"receiver_user_id": ANN, "ephemeral_message_id": sent["ephemeral_message_id"]}
    assert (sent["message_id"], sent["receiver_user"]["id"]) == (0, ANN)
    Message.model_validate(sent)
    # And only the methods for ephemeral messages find it, for its receiver
    assert bot.result("editEphemeralMessageText", chat_id=GROUP, **named, text="2") is True
    assert refused(bot, "editEphemeralMessageText", **named, text="2").startswith("message is not modified")
    assert refused(bot, "editMessageText", message_id=named["ephemeral_message_id"], text="x") == (
        "message to edit not found"
    )
    assert refused(bot, "deleteEphemeralMessage", **{**named, "receiver_user_id": BEN}) == "message to delete not found"
    assert bot.result("editEphemeralMessageReplyMarkup", chat_id=GROUP, **named, reply_markup=YES) is True
    rich = {"blocks": [{"type": "paragraph", "text": "3"}]}
    assert bot.result("editEphemeralMessageText", chat_id=GROUP, **named, rich_message=rich) is True
    assert bot.result("deleteEphemeralMessage", chat_id=GROUP, **named) is True
    assert refused(bot, "deleteEphemeralMessage", **named) == "message to delete not found"
    # And an ordinary message is not found by them
    ordinary = bot.result("sendMessage", chat_id=GROUP, text="All")["message_id"]
    named["ephemeral_message_id"] = ordinary
    assert refused(bot, "editEphemeralMessageText", **named, text="x") == "message to edit not found"


def test_only_its_receiver_presses_its_buttons(simulator: Simulator, bot: BotClient) -> None:
    sent = send(bot, reply_markup=YES)
    [call] = simulator.sent()
    with pytest.raises(SimulatorFailedError, match="only its receiver sees this ephemeral message"):
        simulator.press(call, "Yes", user_id=BEN)
    update = simulator.press(call, "Yes")
    assert update is not None
    assert (update["callback_query"]["from"]["id"], update["callback_query"]["message"]) == (ANN, sent)


def test_a_reply_to_one_must_be_one(simulator: Simulator, bot: BotClient) -> None:
    # Given an ephemeral message of a user
    update = simulator.write("/balance", chat_id=GROUP, user_id=ANN, ephemeral=True)
    assert update is not None
    message = update["message"]
    assert message["message_id"] == 0
    to = {"reply_parameters": {"ephemeral_message_id": message["ephemeral_message_id"]}}
    # Then an ephemeral reply is accepted, and a public one is refused
    assert send(bot, **to)["reply_to_message"]["text"] == "/balance"
    assert refused(bot, "sendMessage", text="3", **to) == (
        "a reply to an ephemeral message must be an ephemeral message"
    )
    # And after 15 s there is none
    old = {**message, "ephemeral_message_id": 99, "date": message["date"] - 16}
    simulator.push({"message": old})
    late = {"reply_parameters": {"ephemeral_message_id": 99}, "ephemeral_message_parameters": TO_ANN}
    assert refused(bot, "sendMessage", text="3", **late) == "message to be replied not found"


def test_what_cannot_be_ephemeral(simulator: Simulator, bot: BotClient) -> None:
    private = bot("sendMessage", chat_id=ANN, text="x", ephemeral_message_parameters=TO_ANN)
    assert "only to groups and supergroups" in private.json()["description"]
    assert refused(bot, "sendMessage", text="x", ephemeral_message_parameters={}) == "invalid user_id specified"
    live = {"latitude": 1, "longitude": 1, "live_period": 60, "ephemeral_message_parameters": TO_ANN}
    assert "live location" in refused(bot, "sendLocation", **live)
    # A method that does not take the parameter ignores it, as Telegram does: everybody sees the message
    assert bot.result("sendDice", chat_id=GROUP, ephemeral_message_parameters=TO_ANN)["message_id"] > 0
    with pytest.raises(SimulatorFailedError, match="ephemeral messages are written in groups only"):
        simulator.write("x", chat_id=ANN, ephemeral=True)


def test_commands_are_stored_by_scope(bot: BotClient) -> None:
    commands = [{"command": "balance", "description": "Mine", "is_ephemeral": True}]
    bot.result("setMyCommands", commands=commands, scope={"type": "all_group_chats"})
    assert bot.result("getMyCommands", scope={"type": "all_group_chats"}) == commands
    assert bot.result("getMyCommands") == []
    bot.result("deleteMyCommands", scope={"type": "all_group_chats"})
    assert bot.result("getMyCommands", scope={"type": "all_group_chats"}) == []


def test_every_kind_of_update_can_be_delivered(simulator: Simulator, bot: BotClient) -> None:
    # Given a bot that receives every kind
    known = examples(GROUP, ANN)
    bot.updates(allowed_updates=[next(iter(update)) for update in known.values()])
    # When an example of each is delivered, then it gets them in order
    ids = simulator.push_examples(chat_id=GROUP, user_id=ANN)
    assert list(ids) == list(known)
    got = bot.updates()
    assert [update["update_id"] for update in got] == list(ids.values())
    assert [set(update) - {"update_id"} for update in got] == [set(update) for update in known.values()]
    # And those that are named, and no others
    assert list(simulator.push_examples("poll", "subscription")) == ["poll", "subscription"]
    with pytest.raises(SimulatorFailedError, match="call is unknown; the names are message, "):
        simulator.push_examples("call")
