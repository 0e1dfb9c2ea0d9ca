"""The page over HTTP: users' actions become updates, and the effects of the bot's calls are shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, run
from typing import Any

import pytest
import requests

from chatlanes_sandbox.page.order_audit import OrderAudit
from chatlanes_sandbox.page.storage import PageStorage, StorageError
from chatlanes_sandbox.simulator import Simulator, SimulatorFailedError, start
from tests.sandbox.calling import PATIENCE_S, BotClient, wait_until
from tests.sandbox.page.paging import PageClient
from tests.support import ROOT

PICTURE = ROOT / "chatlanes" / "demo" / "photo.png"
#: No Redis: what the page shows of the lanes stays empty.
ALONE = {**os.environ, "REDIS_URL": "redis://127.0.0.1:1/0", "BOT_TOKEN": "1:TEST"}
GROUP = -1_000_000_000_001
BUTTON = {"inline_keyboard": [[{"text": "More", "callback_data": "more"}]]}


#: One rich block of each form, and the text that is shown.
BLOCKS = [
    {"type": "heading", "size": 1, "text": ["Hats ", {"type": "bold", "text": {"type": "italic", "text": "today"}}]},
    {"type": "list", "items": [{"label": "1.", "blocks": [{"type": "paragraph", "text": "red"}]}]},
    {"type": "list", "items": [{"has_checkbox": True, "is_checked": True, "blocks": []}]},
    {"type": "table", "cells": [[{"text": "a", "is_header": True}, {"text": "b"}], [{"text": "c"}, {}]]},
    {"type": "details", "summary": "More", "blocks": [{"type": "pre", "text": "x = 1"}]},
    {"type": "mathematical_expression", "expression": "x^2"},
    {"type": "divider"},
    {"type": "buttons", "buttons": [{"text": "Go", "callback_data": "go"}]},
    {"type": "map", "location": {}},
]
SHOWN = "Hats today\n1. red\n☑ \na | b\nc | \nMore\nx = 1\nx^2\n———\n[Go]\n(map)"


def start_page(file: Path) -> Simulator:
    return start(quirks=False, page=file, environment=ALONE)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with start_page(tmp_path_factory.mktemp("page") / "page.sqlite3") as simulator:
        yield simulator


@pytest.fixture
def page(running: Simulator) -> PageClient:
    return PageClient(running.url)


@pytest.fixture
def bot(running: Simulator) -> Iterator[BotClient]:
    caller = BotClient(running)
    confirm_all(caller)
    yield caller
    caller.close()


def confirm_all(bot: BotClient) -> None:
    while updates := bot.updates(timeout=0):
        bot.updates(offset=updates[-1]["update_id"] + 1, timeout=0)


def newest(bot: BotClient) -> Any:
    return bot.updates(timeout=0)[-1]


def refusal(bot: BotClient, method: str, **params: Any) -> str:
    answer = bot(method, **params)
    assert answer.status_code == 400
    return str(answer.json()["description"])


def test_a_message_with_a_button_from_both_sides(page: PageClient, bot: BotClient, running: Simulator) -> None:
    # When Ben writes a command in the group
    said = page.say("🙂 /start now", GROUP, 102)
    # Then the bot gets it as Telegram would send it
    update = newest(bot)
    assert update["update_id"] == said["update_id"]
    message = update["message"]
    assert (message["from"]["first_name"], message["chat"]["type"]) == ("Ben", "supergroup")
    assert message["entities"] == [{"type": "bot_command", "offset": 3, "length": 6}]  # in UTF-16 units
    # When it answers that message, in the name of its update
    url = f"{running.url}/bot{running.token}/sendMessage"
    params = {"chat_id": GROUP, "text": "Yes?", "reply_markup": BUTTON}
    params["reply_parameters"] = {"message_id": said["message_id"]}
    sent = requests.post(url, json=params, headers={"X-Update-Id": f"1:{update['update_id']}"}, timeout=PATIENCE_S)
    asked = sent.json()["result"]
    # Then the page shows whom it answers, and its button
    shown = page.message(lambda each: each["message_id"] == asked["message_id"] and each["chat_id"] == GROUP)
    assert (shown["reply_to"], shown["update_id"]) == (said["message_id"], update["update_id"])
    assert shown["buttons"] == [[{"text": "More", "data": "more", "url": None}]]
    # When Ann presses it, the bot gets the message along, and its answer is a notice for her
    where = {"chat_id": GROUP, "message_id": asked["message_id"]}
    page.do("press", user_id=101, data="more", **where)
    query = newest(bot)["callback_query"]
    assert (query["from"]["id"], query["data"], query["message"]) == (101, "more", asked)
    bot.result("answerCallbackQuery", callback_query_id=query["id"], text="Here", show_alert=True)
    wait_until(lambda: page.last("notice"))
    assert page.last("notice") == {"chat_id": GROUP, "user_id": 101, "text": "Here", "alert": True}
    assert "the button does not exist" in page.refused("press", user_id=101, data="less", **where)
    # When the bot edits and deletes it, then that is seen; and refused when nothing would change or it is gone
    bot.result("editMessageText", text="Done.", **where)
    assert "message is not modified" in refusal(bot, "editMessageText", text="Done.", **where)
    page.message(lambda each: each["edited"] and each["text"] == "Done." and not each["buttons"])
    bot.result("deleteMessage", **where)
    page.message(lambda each: each["deleted"] and each["text"] == "Done.")
    assert "message to delete not found" in refusal(bot, "deleteMessage", **where)
    assert "message to edit not found" in refusal(bot, "editMessageText", text="Again", **where)
    assert "can't be edited" in refusal(
        bot, "editMessageText", text="Mine", chat_id=GROUP, message_id=said["message_id"]
    )


def test_control_requests_write_in_the_chats_of_the_page(page: PageClient, bot: BotClient, running: Simulator) -> None:
    # When a program writes as Ben in the group
    written = running.write("A /word", chat_id=GROUP, user_id=102)
    assert written == newest(bot)
    # Then the page shows it, and the button that a program presses below the answer
    shown = page.message(lambda each: each["update_id"] == written["update_id"])
    assert (shown["chat_id"], shown["user"]["first_name"], shown["text"]) == (GROUP, "Ben", "A /word")
    bot.result("sendMessage", chat_id=GROUP, text="Pressed?", reply_markup=BUTTON)
    answer = running.calls("sendMessage")[-1]
    pressed = running.press(answer, "More", user_id=102)
    assert pressed == newest(bot)
    page.message(lambda each: [press["user_id"] for press in each["presses"]] == [102])
    with pytest.raises(SimulatorFailedError, match="this person is not in this chat"):
        running.write("Who?", chat_id=GROUP, user_id=999)
    with pytest.raises(SimulatorFailedError, match="the message has no button 'Less'"):
        running.press(answer, "Less", user_id=102)


def test_an_edit_reaches_the_bot_if_it_asked_for_edits(page: PageClient, bot: BotClient) -> None:
    said = page.say("helo")
    edited = page.do("edit", chat_id=101, user_id=101, message_id=said["message_id"], text="hello")
    assert newest(bot)["edited_message"]["text"] == "hello"
    assert edited["update_ids"] == [said["update_id"], edited["update_id"]]
    assert "only one's own" in page.refused("edit", chat_id=101, user_id=102, message_id=1, text="no")
    # When the bot wants messages only, an edit does not reach it, and the page says so
    bot.updates(allowed_updates=["message"], timeout=0)
    page.do("edit", chat_id=101, user_id=101, message_id=said["message_id"], text="hello!")
    wait_until(lambda: page.last("notice") and "edited_message" in page.last("notice")["text"])
    bot.updates(allowed_updates=[], timeout=0)


def test_a_photo_both_ways(page: PageClient, bot: BotClient, running: Simulator) -> None:
    # When a user sends one
    picture = PICTURE.read_bytes()
    [shown] = page.photos(picture, caption="Look /here").json()["messages"]
    # Then the bot can download it
    photo = newest(bot)["message"]["photo"][-1]
    assert (photo["width"], photo["height"], photo["file_size"]) == (64, 64, len(picture))
    path = bot.result("getFile", file_id=photo["file_id"])["file_path"]
    assert requests.get(f"{running.url}/file/bot{running.token}/{path}", timeout=PATIENCE_S).content == picture
    assert page.get(shown["photo"]).headers["content-type"] == "image/png"
    assert "not a picture" in page.photos(b"<script>").json()["error"]
    # When the bot sends a page with a script in it as a document, then no browser runs it
    url = f"{running.url}/bot{running.token}/sendDocument"
    requests.post(url, data={"chat_id": 101}, files={"document": ("a.html", b"<script>")}, timeout=PATIENCE_S)
    file = page.message(lambda each: each["kind"] == "document")["file"]
    served = page.get(file["url"])
    assert (file["name"], served.content) == ("a.html", b"<script>")
    assert served.headers["content-type"] == "application/octet-stream"
    assert served.headers["content-disposition"].startswith("attachment")
    assert served.headers["x-content-type-options"] == "nosniff"


def test_several_photos_are_an_album(page: PageClient, bot: BotClient) -> None:
    # When a user sends three at once
    picture = PICTURE.read_bytes()
    shown = page.photos(picture, picture, picture, caption="Three").json()["messages"]
    # Then the bot gets a message for each, with the same media_group_id, and the caption at the first
    sent = [update["message"] for update in bot.updates()]
    assert [each["message_id"] for each in sent] == [each["message_id"] for each in shown]
    [album] = {each["media_group_id"] for each in sent}
    assert {each["media_group_id"] for each in shown} == {album}
    assert [each.get("caption") for each in sent] == ["Three", None, None]
    assert len({each["photo"][0]["file_id"] for each in sent}) == 3
    # And a photo alone is not an album, and the next album is another one
    [alone] = page.photos(picture).json()["messages"]
    assert alone["media_group_id"] is None
    *_, last = page.photos(picture, picture).json()["messages"]
    assert last["media_group_id"] not in (None, album)
    # And nothing is sent of an album that has too many photos, or something else among them
    assert page.photos(*[picture] * 11).json() == {"error": "send 1 to 10 photos"}
    assert page.photos().json() == {"error": "send 1 to 10 photos"}
    assert "not a picture" in page.photos(picture, b"<script>").json()["error"]
    assert page.say("next")["message_id"] == last["message_id"] + 1


@pytest.mark.parametrize(
    ("method", "params", "kind", "text"),
    [
        ("sendDice", {"emoji": "🎰"}, "dice", "🎰"),
        ("sendPoll", {"question": "Tea?", "options": ["Yes", {"text": "No"}]}, "poll", "Tea?\n○ Yes\n○ No"),
        ("sendLocation", {"latitude": 52.5, "longitude": 13.4}, "location", "52.5, 13.4"),
        ("sendContact", {"phone_number": "+49", "first_name": "Cleo"}, "contact", "Cleo, +49"),
        ("sendSticker", {"sticker": "CAAC"}, "sticker", ""),
        ("sendVoice", {"voice": "AwAC", "caption": "listen"}, "voice", "listen"),
        ("forwardMessage", {"from_chat_id": 101, "message_id": 1}, "text", "to be forwarded"),
        ("sendInvoice", {"title": "Hat"}, "invoice", "Hat"),
        ("sendRichMessage", {"rich_message": {"markdown": "# Hat"}}, "rich_message", "# Hat"),
        ("sendRichMessage", {"rich_message": {"blocks": BLOCKS}}, "rich_message", SHOWN),
    ],
)
def test_every_kind_of_message_is_shown(
    page: PageClient, bot: BotClient, method: str, params: dict[str, Any], kind: str, text: str
) -> None:
    chat_id = page.do("chats", type="private", title="", users=[method])["id"]
    if method == "forwardMessage":
        params = {**params, "from_chat_id": chat_id}
        page.say("to be forwarded", chat_id, chat_id)
    sent = bot.result(method, chat_id=chat_id, **params)
    shown = page.message(lambda each: each["chat_id"] == chat_id and each["message_id"] == sent["message_id"])
    assert (shown["kind"], shown["user"]["is_bot"]) == (kind, True)
    assert shown["text"].startswith(text)


def test_a_draft_can_be_stopped(page: PageClient, bot: BotClient) -> None:
    # When the bot drafts, then the page gets the draft
    bot.result("sendMessageDraft", chat_id=101, draft_id=5, text="*so*", parse_mode="Markdown", can_stop=True)
    wait_until(lambda: page.last("drafts"))
    shown = page.last("drafts")
    [draft] = shown["drafts"]
    assert (shown["chat_id"], draft["text"], draft["entities"][0]["type"], draft["can_stop"]) == (
        101,
        "so",
        "bold",
        True,
    )
    # When Ann presses Stop, then the bot gets an update, and the draft is gone
    page.do("stop", chat_id=101)
    update = bot.updates()[-1]["stopped_message_generation"]
    assert (update["chat"]["id"], update["draft_id"]) == (101, 5)
    wait_until(lambda: page.last("drafts")["drafts"] == [])
    assert page.refused("stop", chat_id=101) == "the chat has no draft with a Stop button"


def test_an_ephemeral_message_names_its_reader(page: PageClient, bot: BotClient) -> None:
    # Given a command that is sent as an ephemeral message
    bot.result("setMyCommands", commands=[{"command": "mine", "description": "Mine", "is_ephemeral": True}])
    said = page.say("/mine", GROUP, 102)
    message = bot.updates()[-1]["message"]
    assert (message["message_id"], message["ephemeral_message_id"]) == (0, said["message_id"])
    assert said["seen_by"] == {"id": 102, "first_name": "Ben"}
    # In a private chat it is an ordinary message
    assert page.say("/mine")["seen_by"] is None
    # When the bot answers, then its answer names the reader, and others cannot press its button
    asked = {"chat_id": GROUP, "text": "3", "reply_markup": BUTTON}
    sent = bot.result("sendMessage", **asked, ephemeral_message_parameters={"receiver_user_id": 102})
    ids = GROUP, sent["ephemeral_message_id"]
    shown = page.message(lambda each: (each["chat_id"], each["message_id"]) == ids)
    assert (sent["message_id"], sent["receiver_user"]["first_name"], shown["seen_by"]["id"]) == (0, "Ben", 102)
    press = {"chat_id": GROUP, "message_id": sent["ephemeral_message_id"], "data": "more"}
    assert page.refused("press", user_id=101, **press) == "only its receiver sees this ephemeral message"
    page.do("press", user_id=102, **press)
    assert bot.updates()[-1]["callback_query"]["message"]["ephemeral_message_id"] == sent["ephemeral_message_id"]
    # And one to a stranger is refused
    stranger = bot("sendMessage", **asked, ephemeral_message_parameters={"receiver_user_id": 999})
    assert stranger.json()["description"] == "Bad Request: user not found"


def test_calls_that_add_no_message(page: PageClient, bot: BotClient) -> None:
    said = page.say("hi")
    where = {"chat_id": 101, "message_id": said["message_id"]}
    bot.result("setMessageReaction", reaction=[{"type": "emoji", "emoji": "👍"}], **where)
    page.message(lambda each: each["reactions"] == ["👍"])
    bot.result("sendChatAction", chat_id=101, action="typing")
    wait_until(lambda: page.last("action") == {"chat_id": 101, "action": "typing"})
    bot.result("sendMessage", chat_id=101, text="pick", reply_markup={"keyboard": [["A", {"text": "B"}]]})
    page.message(lambda each: each["keyboard"] == [["A", "B"]])
    album = [{"type": "photo", "media": "one"}, {"type": "video", "media": "two", "caption": "2"}]
    first, second = bot.result("sendMediaGroup", chat_id=101, media=album)
    assert first["media_group_id"] == second["media_group_id"]
    assert page.message(lambda each: each["text"] == "2")["kind"] == "video"
    assert bot.result("getChatMember", chat_id=GROUP, user_id=102)["user"]["first_name"] == "Ben"
    assert "user not found" in refusal(bot, "getChatMember", chat_id=GROUP, user_id=7)
    assert "message to be replied not found" in refusal(
        bot, "sendMessage", chat_id=101, text="?", reply_parameters={"message_id": 9_999}
    )


def test_an_impossible_action_is_refused_in_one_sentence(page: PageClient) -> None:
    assert page.refused("send", chat_id=5, user_id=101, text="x") == "the chat does not exist"
    assert page.refused("send", chat_id=101, user_id=102, text="x") == "this person is not in this chat"
    assert page.refused("send", chat_id=101, user_id=101, text=" ") == "an empty message cannot be sent"
    assert page.refused("send", chat_id=101, user_id=101) == "text is missing"
    assert page.refused("flood", count=0) == "a flood has from 1 to 5000 messages"
    assert page.refused("kill", worker=None) == "no worker is running at the moment"
    assert "Redis does not answer" in page.refused("replay", update_id=1)
    assert page.get("/page/updates/999999").status_code == 404
    assert page.post("send").status_code == 400


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {"Sec-Fetch-Site": "cross-site"}, 200),
        ("/page/nothing.js", {}, 404),
        ("/page/%2e%2e%2fpage.py", {}, 404),
        ("/", {"Host": "evil.example:8081"}, 403),
        ("/page/events", {"Origin": "http://evil.example"}, 403),
        ("/page/events", {"Origin": "null"}, 403),
        ("/bot1:TEST/getMe", {"Sec-Fetch-Site": "same-site"}, 403),
        ("/control/stats", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("/bot1:TEST/getMe", {}, 200),
    ],
)
def test_foreign_pages_are_refused(page: PageClient, path: str, headers: dict[str, str], status: int) -> None:
    assert page.get(path, **headers).status_code == status


def test_what_is_not_a_file_of_a_page_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("These are notes. " * 99)
    with pytest.raises(StorageError, match=r"cannot be used: file is not a database\. Name another one with --data"):
        PageStorage(file)
    assert file.read_text() == "These are notes. " * 99


@pytest.mark.slow
def test_chats_survive_a_kill(tmp_path: Path) -> None:
    file = tmp_path / "page.sqlite3"
    # Given a page on which something was said: one message that the bot has taken, one that it has not
    with start_page(file) as first:
        page, bot = PageClient(first.url), BotClient(first)
        taken, waiting = page.say("taken"), page.say("waiting")
        bot.updates(offset=taken["update_id"] + 1, timeout=0)
        bot.result("sendMessage", chat_id=101, text="an answer")
        group = page.do("chats", type="supergroup", title="Team", users=["Cleo", "Ann"])
        # Then no second one may have its file
        command = [sys.executable, "-m", "chatlanes_sandbox.simulator", "--port", "0", "--page", str(file)]
        second = run(command, env=ALONE, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert second.returncode == 1
        assert "page.sqlite3 cannot be used: another sandbox uses it" in second.stderr
        beside = first.write("in a chat that the page does not have", chat_id=1000)
        assert first.process
        first.process.kill()
        first.process.wait(PATIENCE_S)
        bot.close()
    # When it was killed and is started again
    with start_page(file) as again:
        page, bot = PageClient(again.url), BotClient(again)
        # Then all of it is there, and the bot gets what it had not taken, once
        assert [message["text"] for message in page.snapshot["messages"]] == ["taken", "waiting", "an answer"]
        assert group in page.snapshot["chats"]
        assert bot.ids(timeout=0) == [waiting["update_id"]]
        # And ids continue
        more = page.say("more")
        assert more["message_id"] == 4
        assert more["update_id"] > beside["update_id"] > waiting["update_id"]
        page.do("clear", chat_id=101)
        assert page.say("anew")["message_id"] == 5
        bot.close()


def test_the_audit_reports_overtaken_repeated_and_lost_updates() -> None:
    ledger = OrderAudit()
    for update_id in (1, 2, 3, 4):
        ledger.give(update_id, ["chat:7"], is_flood=True)
    for update_id in (1, 3, 2, 3):  # 2 comes late; 3 is answered twice with the same words
        ledger.called(update_id, "sendMessage", {"text": f"{update_id}"})
    ledger.called(1, "sendMessage", {"text": "a second answer is not a repetition"})
    ledger.lose(sorted(ledger.open))
    ledger.called(9, "sendMessage", {})  # nobody gave it out
    counts = (ledger.answered, ledger.out_of_order, ledger.repeated, ledger.lost)
    assert counts == (3, 1, 1, 1)


def test_the_audit_knows_collected_updates_and_interrupted_runs() -> None:
    audit = OrderAudit(collects=True, interrupts=True)
    for update_id in (1, 2):
        audit.give(update_id, ["chat:7"], is_flood=True)
    assert audit.open == set()
    for _ in range(2):  # the run of both sends again what the interrupted run of the first has sent
        audit.called(1, "sendMessage", {"text": "one moment"})
    assert (audit.answered, audit.repeated, audit.lost) == (1, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/page/%00", 404),
        ("/page/..%2fbook.py", 404),
        (f"/page/{'x' * 300}", 404),
        ("/page/files/%00", 404),
        (f"/page/updates/{'9' * 30}", 404),
        ("/page/main.js", 200),
    ],
)
def test_odd_paths_are_not_found(running: Simulator, path: str, status: int) -> None:
    assert requests.get(running.url + path, timeout=PATIENCE_S).status_code == status


def test_a_simulator_that_was_started_alone_names_no_bot(page: PageClient, tmp_path: Path) -> None:
    assert page.snapshot["bot"]["path"] == "chatlanes.demo.echo:handle"
    command = [sys.executable, "-m", "chatlanes_sandbox.simulator", "--port", "0", "--page", str(tmp_path / "chats")]
    with Popen(command, stdin=DEVNULL, stdout=PIPE, text=True) as alone:
        try:
            assert alone.stdout is not None
            url = alone.stdout.readline().split()[-1]
            assert PageClient(url).snapshot["bot"]["path"] == ""
        finally:
            alone.terminate()
