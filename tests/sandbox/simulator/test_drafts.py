"""Drafts and their Stop button, as a bot and as a user see them."""

import pytest

from chatlanes_sandbox.simulator import Simulator, SimulatorFailedError
from chatlanes_sandbox.simulator.calls.drafts import Drafts
from chatlanes_sandbox.simulator.calls.files import FileStore
from tests.sandbox.calling import BotClient

RICH = {"markdown": "# Hat"}
BLOCKS = {"blocks": [{"type": "paragraph", "text": "# Hat"}]}


def test_a_draft_is_shown_until_the_bot_sends_a_message(simulator: Simulator, bot: BotClient) -> None:
    # When a bot drafts, then its chat has the newest draft
    assert bot.result("sendMessageDraft", chat_id=7, draft_id=1) is True
    assert bot.result("sendMessageDraft", chat_id=7, draft_id=1, text="*Well*", parse_mode="Markdown") is True
    bot.result("sendRichMessageDraft", chat_id=8, draft_id=2, rich_message=RICH, can_stop=True)
    first, second = simulator.drafts()
    assert (first["text"], first["entities"][0]["type"], first["can_stop"]) == ("Well", "bold", False)
    assert 10 < first["ends_in_s"] <= 30
    assert (second["chat_id"], second["draft_id"], second["rich_message"], second["can_stop"]) == (8, 2, BLOCKS, True)
    # And a message ends it
    bot.result("sendMessage", chat_id=7, text="Well.")
    assert [draft["chat_id"] for draft in simulator.drafts()] == [8]
    assert not any(call["method"] == "sendMessageDraft" for call in simulator.sent(1))


@pytest.mark.parametrize("keeps", [False, True])
def test_stop_makes_an_update_once(simulator: Simulator, bot: BotClient, keeps: bool) -> None:
    draft = {"chat_id": 7, "message_thread_id": 3, "draft_id": 5, "can_stop": True, "keep_on_stop": keeps}
    bot.result("sendMessageDraft", **draft, text="One")
    # When the user presses Stop, then the bot gets the update
    update = simulator.press_stop(7, message_thread_id=3)
    assert bot.updates() == [update]
    assert update is not None
    stopped = update["stopped_message_generation"]
    assert (stopped["chat"]["id"], stopped["draft_id"], stopped["message_thread_id"]) == (7, 5, 3)
    # And the draft is gone, or has no button; further ones are accepted and not shown
    bot.result("sendMessageDraft", **draft, text="One two")
    assert [(each["text"], each["can_stop"]) for each in simulator.drafts()] == [("One", False)] * keeps
    # And after a message the id may be used again
    bot.result("sendMessage", chat_id=7, message_thread_id=3, text="Stopped.")
    bot.result("sendMessageDraft", **draft, text="Next")
    assert [(each["text"], each["can_stop"]) for each in simulator.drafts()] == [("Next", True)]


def test_stop_needs_a_draft_with_the_button(simulator: Simulator, bot: BotClient) -> None:
    bot.result("sendMessageDraft", chat_id=7, draft_id=1, text="One")
    for chat in (7, 8):
        with pytest.raises(SimulatorFailedError, match="the chat has no draft with a Stop button"):
            simulator.press_stop(chat)


@pytest.mark.parametrize(
    ("params", "description"),
    [
        ({"chat_id": -7, "draft_id": 1}, "Bad Request: chat not found"),
        ({"chat_id": 7, "draft_id": 0}, "Bad Request: DRAFT_ID_INVALID"),
        ({"chat_id": 7, "draft_id": 1, "text": "x" * 4097}, "Bad Request: message is too long"),
    ],
)
def test_what_is_no_draft_is_refused(bot: BotClient, params: dict[str, object], description: str) -> None:
    answer = bot("sendMessageDraft", **params)
    assert (answer.status_code, answer.json()["description"]) == (400, description)


def test_a_draft_vanishes_30_s_after_it_was_last_sent() -> None:
    now_s, files = 0.0, FileStore()
    drafts = Drafts(clock=lambda: now_s)
    draft = {"chat_id": 7, "draft_id": 1, "text": "One", "can_stop": True}
    drafts.put("sendMessageDraft", draft, files)
    now_s = 29.0
    assert [each["ends_in_s"] for each in drafts.shown()] == [1.0]
    drafts.put("sendMessageDraft", draft, files)
    now_s = 58.9
    assert len(drafts.shown()) == 1
    now_s = 59.0
    assert drafts.shown() == []
    with pytest.raises(ValueError, match="no draft with a Stop button"):
        drafts.stop((7, 0))
