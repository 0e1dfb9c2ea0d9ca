"""TYPING=on, with a real Redis, the simulated Bot API and, at the end, workers of each pool."""

from __future__ import annotations

from typing import Any

import pytest

from chatlanes.bot.calls.run_calls import Calls
from chatlanes.tasks import typing_action
from chatlanes.tasks.typing_action import TypingAction, action_of
from chatlanes.telegram.client import BotApi
from tests.bot.stream.conftest import Chat, chat, quick
from tests.pipeline.conftest import MakePipeline, make_pipeline, simulated, simulator
from tests.support.pipeline import TOKEN, message
from tests.support.waiting import until

__all__ = ["chat", "make_pipeline", "quick", "simulated", "simulator"]

ACTION = {"chat_id": 7, "action": "typing"}
FORUM = {"message_thread_id": 5, "is_topic_message": True}


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typing_action, "FIRST_AFTER_S", 0.02)
    monkeypatch.setattr(typing_action, "EVERY_S", 0.05)


def typed(chat: Chat, chat_id: int = 7) -> int:
    return len([each for each in chat.made("sendChatAction") if each["chat_id"] == chat_id])


def pass_time(chat: Chat) -> None:
    """Until another chat has been shown three more actions."""
    already = typed(chat, 8)
    with TypingAction(Calls(BotApi(chat.simulator.url, TOKEN)), {**ACTION, "chat_id": 8}).shown():
        until(lambda: typed(chat, 8) >= already + 3)


def test_the_action_is_shown_until_the_handler_ends(chat: Chat) -> None:
    with TypingAction(chat.run().calls, ACTION).shown():
        until(lambda: typed(chat) >= 3)
    shown = typed(chat)
    pass_time(chat)
    assert typed(chat) == shown


def test_a_quick_handler_shows_nothing(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typing_action, "FIRST_AFTER_S", 60.0)
    with TypingAction(chat.run().calls, ACTION).shown():
        pass
    monkeypatch.setattr(typing_action, "FIRST_AFTER_S", 0.02)
    pass_time(chat)
    assert typed(chat) == 0


def test_the_end_waits_for_the_request_in_flight(chat: Chat) -> None:
    chat.simulator.fault(method="sendChatAction", hang_s=0.5)
    with TypingAction(chat.run().calls, ACTION).shown():
        until(lambda: chat.simulator.stats()["faults"] == 0)  # the request has arrived
    assert typed(chat) == 1


def test_nothing_is_shown_after_the_lease_was_lost(chat: Chat) -> None:
    run = chat.run()
    with TypingAction(run.calls, ACTION).shown():
        until(lambda: typed(chat))
        run.dies()
        newer = chat.run()
        shown = typed(chat)
        pass_time(chat)
        assert typed(chat) <= shown + 1  # one may have been in flight
        shown = typed(chat)
        pass_time(chat)
        assert typed(chat) == shown
    with TypingAction(newer.calls, ACTION).shown():
        until(lambda: typed(chat) > shown)


def test_flood_control_holds_the_action(chat: Chat) -> None:
    chat.simulator.fault(method="sendChatAction", status=429, retry_after=1)
    run = chat.run()
    with TypingAction(run.calls, ACTION).shown():
        until(lambda: chat.simulator.stats()["faults"] == 0)
        until(lambda: typed(chat) >= 2)
    refused, *later = chat.simulator.calls("sendChatAction")
    assert later[0]["at"] - refused["at"] >= 0.9
    assert not run.parking.is_wanted


@pytest.mark.parametrize(("status", "goes_on"), [(500, True), (403, False)])
def test_an_error_never_reaches_the_handler(chat: Chat, status: int, goes_on: bool) -> None:
    chat.simulator.fault(method="sendChatAction", chat_id=7, status=status)
    with TypingAction(chat.run().calls, ACTION).shown():
        until(lambda: chat.simulator.stats()["faults"] == 0)
        pass_time(chat)
        if goes_on:
            until(lambda: typed(chat) >= 1)
        assert (typed(chat) > 0) == goes_on


def update(kind: str = "message", **more: Any) -> dict[str, Any]:
    return {"update_id": 1, kind: {**message(1, 7)["message"], **more}}


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (update(), ACTION),
        (update(**FORUM), {**ACTION, "message_thread_id": 5}),
        (update("business_message", business_connection_id="b"), {**ACTION, "business_connection_id": "b"}),
        ({"callback_query": {"id": "q", "from": {"id": 9}, "message": update()["message"]}}, ACTION),
        ({"timer": {"chat": {"id": 7}, "name": "a"}}, ACTION),
        (update("channel_post"), None),
        (update(chat={"id": -7, "type": "channel"}), None),
        (update(chat={"id": -7, "type": "supergroup", "is_direct_messages": True}), None),
        (update(ephemeral_message_id=4), None),
        (update("guest_message"), None),
        ({"inline_query": {"id": "q", "from": {"id": 7}, "query": "a"}}, None),
        ({"callback_query": {"id": "q", "from": {"id": 9}, "inline_message_id": "i"}}, None),
        ({"poll": {"id": "p"}}, None),
    ],
)
def test_the_action_is_for_chats_in_which_a_user_waits(of: dict[str, Any], expected: Any) -> None:
    assert action_of(of) == expected


@pytest.mark.parametrize(
    ("bot", "pool"), [("handle", "prefork"), ("handle", "gevent"), ("handle", "threads"), ("handle_async", "threads")]
)
def test_a_worker_shows_the_action_while_a_handler_runs(make_pipeline: MakePipeline, bot: str, pool: str) -> None:
    # Given a handler that waits, and one that does not
    pipeline = make_pipeline(BOT=f"tests.support.bots:{bot}", TYPING="on")
    pipeline.push(message(1, 7, do="gate:go"), message(1, 8))
    pipeline.poller()
    pipeline.worker(pool, 2)
    # When half a second is over
    until(lambda: pipeline.simulator.calls("sendChatAction"))
    # Then the chat of the first shows the action until it ends
    pipeline.open("go")
    pipeline.drained()
    actions, replies = pipeline.simulator.calls("sendChatAction"), pipeline.simulator.calls("sendMessage")
    assert {each["params"]["chat_id"] for each in actions} == {7}
    assert max(each["at"] for each in actions) < max(each["at"] for each in replies)
    assert pipeline.leftovers() == []


def test_without_the_setting_nothing_is_shown(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT="tests.support.bots:handle")
    pipeline.push(message(1, 7, do="takes:700"))
    pipeline.poller()
    pipeline.worker("threads", 2)
    pipeline.drained()
    assert pipeline.simulator.calls("sendChatAction") == []
