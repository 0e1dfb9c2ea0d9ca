"""The shorthands of the context: the call that each makes, and the errors if the update lacks a required part."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import telegram as ptb

from chatlanes.bot.adapters.ptb.adapter import BridgedRequest
from chatlanes.bot.addressing import NoChatError, NoMessageError, NotEphemeralError, WrongKindError
from chatlanes.bot.context import Context
from chatlanes.bot.shorthands import Shorthands
from chatlanes.telegram import client
from chatlanes.telegram.client import BotApi
from chatlanes.telegram.errors import BadRequest
from chatlanes.telegram.http_client import ResponseLimits
from tests.support.http_server import TOKEN, Answer
from tests.telegram.source import recorded

ANN = {"id": 7, "is_bot": False}
HELLO = {"message_id": 3, "chat": {"id": 7}, "from": ANN, "text": "hello"}
TOPIC = {**HELLO, "chat": {"id": -100}, "message_thread_id": 5, "is_topic_message": True}
BUSINESS = {**HELLO, "business_connection_id": "b"}
BUTTON = {"id": "q", "from": ANN, "message": {**HELLO, "chat": {"id": -100}}, "data": "yes"}
INLINE_BUTTON = {"id": "q", "from": ANN, "inline_message_id": "i", "data": "yes"}
SENT = {"message_id": 9, "chat": {"id": 7}, "text": "0 %"}
JOIN = {"chat": {"id": -100}, "from": ANN, "user_chat_id": 7}
JOIN_QUERY = {**JOIN, "query_id": "q"}
SECRET = {"message_id": 0, "ephemeral_message_id": 4, "chat": {"id": -100}, "receiver_user": ANN, "text": "0 %"}
EPHEMERAL = {"chat_id": -100, "receiver_user_id": 7, "ephemeral_message_id": 4}
WHISPER = {"message_id": 0, "ephemeral_message_id": 4, "chat": {"id": -100}, "from": ANN, "text": "/balance"}
ANSWER = {
    "chat_id": -100,
    "ephemeral_message_parameters": {"receiver_user_id": 7},
    "reply_parameters": {"ephemeral_message_id": 4},
}
EPHEMERAL_BUTTON = {**BUTTON, "message": SECRET}
MARKUP = {"inline_keyboard": [[{"text": "A", "callback_data": "a"}]]}
RESULT = {"type": "article", "id": "1"}


def context(kind: str, body: Any, api: Any = None) -> Context:
    return Context({"update_id": 12, kind: body}, api)


CALLS = [
    # update, what the handler writes, the call
    ("message", HELLO, lambda c: c.reply_photo("file_id", "A cat"), "sendPhoto",
     {"chat_id": 7, "photo": "file_id", "caption": "A cat"}),
    ("message", TOPIC, lambda c: c.reply_document("d", parse_mode="HTML"), "sendDocument",
     {"chat_id": -100, "message_thread_id": 5, "document": "d", "parse_mode": "HTML"}),
    ("business_message", BUSINESS, lambda c: c.reply_video("v"), "sendVideo",
     {"chat_id": 7, "business_connection_id": "b", "video": "v"}),
    ("message", HELLO, lambda c: c.reply_animation("a", chat_id=8), "sendAnimation", {"chat_id": 8, "animation": "a"}),
    ("message", HELLO, lambda c: c.reply_audio("a"), "sendAudio", {"chat_id": 7, "audio": "a"}),
    ("message", HELLO, lambda c: c.reply_voice("v"), "sendVoice", {"chat_id": 7, "voice": "v"}),
    ("message", HELLO, lambda c: c.reply_sticker("s"), "sendSticker", {"chat_id": 7, "sticker": "s"}),
    ("message", HELLO, lambda c: c.reply_album([{"type": "photo", "media": "a"}]), "sendMediaGroup",
     {"chat_id": 7, "media": [{"type": "photo", "media": "a"}]}),
    ("message", HELLO, lambda c: c.reply_location(1.5, -2), "sendLocation",
     {"chat_id": 7, "latitude": 1.5, "longitude": -2}),
    ("message", TOPIC, lambda c: c.typing(), "sendChatAction",
     {"chat_id": -100, "message_thread_id": 5, "action": "typing"}),
    ("inline_query", {"id": "q", "from": ANN}, lambda c: c.reply_photo("p"), "sendPhoto", {"chat_id": 7, "photo": "p"}),

    ("callback_query", BUTTON, lambda c: c.edit("done", reply_markup=MARKUP), "editMessageText",
     {"chat_id": -100, "message_id": 3, "text": "done", "reply_markup": MARKUP}),
    ("callback_query", INLINE_BUTTON, lambda c: c.edit("done"), "editMessageText",
     {"inline_message_id": "i", "text": "done"}),
    ("chosen_inline_result", {"from": ANN, "inline_message_id": "i"}, lambda c: c.edit_markup(MARKUP),
     "editMessageReplyMarkup",
     {"inline_message_id": "i", "reply_markup": MARKUP}),
    ("message", HELLO, lambda c: c.edit("50 %", message=SENT), "editMessageText",
     {"chat_id": 7, "message_id": 9, "text": "50 %"}),
    ("business_message", BUSINESS, lambda c: c.edit_caption("c"), "editMessageCaption",
     {"chat_id": 7, "message_id": 3, "business_connection_id": "b", "caption": "c"}),
    ("callback_query", BUTTON, lambda c: c.edit_markup(), "editMessageReplyMarkup", {"chat_id": -100, "message_id": 3}),
    ("message", HELLO, lambda c: c.delete(), "deleteMessage", {"chat_id": 7, "message_id": 3}),
    ("callback_query", BUTTON, lambda c: c.delete(message=SENT), "deleteMessage", {"chat_id": 7, "message_id": 9}),
    ("business_message", BUSINESS, lambda c: c.delete(), "deleteBusinessMessages",
     {"business_connection_id": "b", "message_ids": [3]}),
    ("message", HELLO, lambda c: c.react("👍"), "setMessageReaction",
     {"chat_id": 7, "message_id": 3, "reaction": [{"type": "emoji", "emoji": "👍"}]}),
    ("message_reaction", {"chat": {"id": 7}, "message_id": 3, "user": ANN}, lambda c: c.react(None, is_big=True),
     "setMessageReaction",
     {"chat_id": 7, "message_id": 3, "reaction": [], "is_big": True}),
    ("message", HELLO, lambda c: c.pin(disable_notification=True), "pinChatMessage",
     {"chat_id": 7, "message_id": 3, "disable_notification": True}),
    ("message", HELLO, lambda c: c.copy_to(-5), "copyMessage", {"chat_id": -5, "from_chat_id": 7, "message_id": 3}),
    ("message", HELLO, lambda c: c.forward_to("@news"), "forwardMessage",
     {"chat_id": "@news", "from_chat_id": 7, "message_id": 3}),

    ("callback_query", BUTTON, lambda c: c.answer_callback("Saved", show_alert=True), "answerCallbackQuery",
     {"callback_query_id": "q", "text": "Saved", "show_alert": True}),
    ("callback_query", INLINE_BUTTON, lambda c: c.answer_callback(), "answerCallbackQuery", {"callback_query_id": "q"}),
    ("inline_query", {"id": "q", "from": ANN}, lambda c: c.answer_inline([RESULT], cache_time=0), "answerInlineQuery",
     {"inline_query_id": "q", "results": [RESULT], "cache_time": 0}),
    ("pre_checkout_query", {"id": "q", "from": ANN}, lambda c: c.answer_pre_checkout(), "answerPreCheckoutQuery",
     {"pre_checkout_query_id": "q", "ok": True}),
    ("pre_checkout_query", {"id": "q", "from": ANN}, lambda c: c.answer_pre_checkout(refuse="Sold out"),
     "answerPreCheckoutQuery",
     {"pre_checkout_query_id": "q", "ok": False, "error_message": "Sold out"}),
    ("shipping_query", {"id": "q", "from": ANN}, lambda c: c.answer_shipping([{"id": "post"}]), "answerShippingQuery",
     {"shipping_query_id": "q", "ok": True, "shipping_options": [{"id": "post"}]}),
    ("shipping_query", {"id": "q", "from": ANN}, lambda c: c.answer_shipping(refuse="Too far"), "answerShippingQuery",
     {"shipping_query_id": "q", "ok": False, "error_message": "Too far"}),
    ("chat_join_request", JOIN, lambda c: c.approve_join(), "approveChatJoinRequest", {"chat_id": -100, "user_id": 7}),
    ("chat_join_request", JOIN, lambda c: c.decline_join(), "declineChatJoinRequest", {"chat_id": -100, "user_id": 7}),
    ("chat_join_request", JOIN_QUERY, lambda c: c.approve_join(), "answerChatJoinRequestQuery",
     {"chat_join_request_query_id": "q", "result": "approve"}),
    ("chat_join_request", JOIN_QUERY, lambda c: c.decline_join(), "answerChatJoinRequestQuery",
     {"chat_join_request_query_id": "q", "result": "decline"}),
    ("chat_join_request", JOIN_QUERY, lambda c: c.queue_join(), "answerChatJoinRequestQuery",
     {"chat_join_request_query_id": "q", "result": "queue"}),
    ("chat_join_request", JOIN_QUERY, lambda c: c.open_join_app("https://a.example"), "sendChatJoinRequestWebApp",
     {"chat_join_request_query_id": "q", "web_app_url": "https://a.example"}),

    ("message", TOPIC, lambda c: c.reply_rich("# Hat", protect_content=True), "sendRichMessage",
     {"chat_id": -100, "message_thread_id": 5, "rich_message": {"markdown": "# Hat"}, "protect_content": True}),
    ("message", HELLO, lambda c: c.reply_rich({"html": "<h1>Hat</h1>"}), "sendRichMessage",
     {"chat_id": 7, "rich_message": {"html": "<h1>Hat</h1>"}}),
    ("callback_query", BUTTON, lambda c: c.edit_rich("# Hat"), "editMessageText",
     {"chat_id": -100, "message_id": 3, "rich_message": {"markdown": "# Hat"}}),
    # An ephemeral message of the bot is edited and deleted by methods of its own.
    ("callback_query", EPHEMERAL_BUTTON, lambda c: c.edit("done"), "editEphemeralMessageText",
     {**EPHEMERAL, "text": "done"}),
    ("callback_query", EPHEMERAL_BUTTON, lambda c: c.edit_caption("done"), "editEphemeralMessageCaption",
     {**EPHEMERAL, "caption": "done"}),
    ("callback_query", EPHEMERAL_BUTTON, lambda c: c.edit_markup(MARKUP), "editEphemeralMessageReplyMarkup",
     {**EPHEMERAL, "reply_markup": MARKUP}),
    ("callback_query", EPHEMERAL_BUTTON, lambda c: c.edit_rich("# Hat"), "editEphemeralMessageText",
     {**EPHEMERAL, "rich_message": {"markdown": "# Hat"}}),
    ("callback_query", EPHEMERAL_BUTTON, lambda c: c.delete(), "deleteEphemeralMessage", EPHEMERAL),
    ("message", HELLO, lambda c: c.edit("50 %", message=SECRET), "editEphemeralMessageText",
     {**EPHEMERAL, "text": "50 %"}),
    ("message", HELLO, lambda c: c.delete(message=SECRET), "deleteEphemeralMessage", EPHEMERAL),
    # An ephemeral message is answered with one.
    ("message", WHISPER, lambda c: c.reply("hush"), "sendMessage", {**ANSWER, "text": "hush"}),
    ("edited_message", WHISPER, lambda c: c.reply_photo("p"), "sendPhoto", {**ANSWER, "photo": "p"}),
    ("message", {**WHISPER, "message_thread_id": 5, "is_topic_message": True}, lambda c: c.reply_rich("# Hat"),
     "sendRichMessage", {**ANSWER, "message_thread_id": 5, "rich_message": {"markdown": "# Hat"}}),
    ("message", WHISPER, lambda c: c.reply("hush", reply_parameters=None), "sendMessage",
     {"chat_id": -100, "ephemeral_message_parameters": {"receiver_user_id": 7}, "text": "hush"}),
    ("callback_query", EPHEMERAL_BUTTON, lambda c: c.reply("hush"), "sendMessage",
     {"chat_id": -100, "ephemeral_message_parameters": {"receiver_user_id": 7, "callback_query_id": "q"},
      "text": "hush"}),
    ("message", WHISPER, lambda c: c.reply("for the owner", chat_id=1), "sendMessage",
     {"chat_id": 1, "text": "for the owner"}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "body", "write", "method", "params"), CALLS)
def test_shorthand_makes_its_call(web, api, kind, body, write, method, params):
    assert write(context(kind, body, api)) is True
    [asked] = web.asked
    assert (asked.path.rpartition("/")[2], asked.json) == (method, params)


COMPLAINTS = [
    ("poll", {"id": "5"}, lambda c: c.reply_photo("p"), NoChatError, "kind poll has no chat to reply to"),
    ("guest_message", HELLO, lambda c: c.typing(), NoChatError, "accepts only one ctx.reply"),
    ("message", HELLO, lambda c: c.edit("x"), NoMessageError, r"cannot edit a user's message \(message\)"),
    ("my_chat_member", {"chat": {"id": 7}}, lambda c: c.edit("x"),
     NoMessageError, "kind my_chat_member does not identify a message"),
    ("inline_query", {"id": "q"}, lambda c: c.delete(),
     NoMessageError, "pass a sent message, such as message=ctx.reply"),
    ("callback_query", INLINE_BUTTON, lambda c: c.copy_to(1),
     NoMessageError, "kind callback_query does not identify a message"),
    ("message", HELLO, lambda c: c.pin(message={}),
     NoMessageError, "the object given as `message` does not identify a message"),
    ("message", HELLO, lambda c: c.answer_callback(),
     WrongKindError, "this method answers callback_query, but the update is of kind message"),
    ("message", HELLO, lambda c: c.answer_inline([]), WrongKindError, "this method answers inline_query"),
    ("shipping_query", {"id": "q"}, lambda c: c.answer_shipping(), ValueError, "either the options or refuse="),
    ("message", HELLO, lambda c: c.approve_join(), WrongKindError, "this method answers chat_join_request"),
    ("chat_join_request", JOIN, lambda c: c.queue_join(), WrongKindError, "a chat_join_request with a query_id"),
    ("message", {**SECRET, "from": ANN}, lambda c: c.edit("x"), NoMessageError, "cannot edit a user's message"),
    ("message", HELLO, lambda c: c.download({"duration": 3}), ValueError, "pass a file_id"),
    ("message", WHISPER, lambda c: c.reply_album([]), NotEphemeralError, "which sendMediaGroup cannot send"),
    ("message", {**WHISPER, "from": None}, lambda c: c.reply("hush"), NotEphemeralError, "to answer before the whole"),
    ("message", WHISPER, lambda c: c.react("👍"), NoMessageError, "an ephemeral message can only be answered"),
    ("message", WHISPER, lambda c: c.pin(), NoMessageError, "an ephemeral message can only be answered"),
    ("message", WHISPER, lambda c: c.delete(), NoMessageError, "an ephemeral message can only be answered"),
    ("message", WHISPER, lambda c: c.forward_to(1), NoMessageError, "an ephemeral message can only be answered"),
    ("callback_query", EPHEMERAL_BUTTON, lambda c: c.copy_to(1), NoMessageError, "can only be answered"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "body", "write", "error", "complaint"), COMPLAINTS)
def test_missing_part_of_the_update_is_named(web, api, kind, body, write, error, complaint):
    with pytest.raises(error, match=complaint):
        write(context(kind, body, api))
    assert web.asked == []


REPLIES = (
    "reply", "reply_photo", "reply_document", "reply_video", "reply_animation", "reply_audio", "reply_voice",
    "reply_sticker", "reply_location", "reply_rich", "reply_album",
)  # fmt: skip


def test_every_reply_to_an_ephemeral_message_is_ephemeral(web, api):
    assert set(REPLIES) == {name for name in dir(Shorthands) if name.startswith("reply")}
    for name in REPLIES:
        args = (1.5, 2.5) if name == "reply_location" else ([],) if name == "reply_album" else ("x",)
        with suppress(NotEphemeralError):
            getattr(context("message", WHISPER, api), name)(*args)
    assert len(web.asked) == len(REPLIES) - 1
    methods = recorded().methods
    for asked in web.asked:
        assert asked.json["ephemeral_message_parameters"] == {"receiver_user_id": 7}
        assert "ephemeral_message_parameters?" in methods[asked.path.rpartition("/")[2]]


def test_typing_of_an_ephemeral_message_is_not_shown_to_the_group(web, api):
    ctx = context("message", WHISPER, api)
    assert ctx.typing() is True
    assert web.asked == []
    ctx.typing(chat_id=7)
    assert [asked.json for asked in web.asked] == [{"chat_id": 7, "action": "typing"}]


def test_edit_without_a_change_succeeds(web, api):
    words = "Bad Request: message is not modified: specified new message content and reply markup are exactly the same"
    web.answer = Answer({"ok": False, "error_code": 400, "description": words}, 400)
    ctx = context("callback_query", BUTTON, api)
    assert ctx.edit("same") is True
    with pytest.raises(BadRequest):
        ctx.pin()


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("message", HELLO, (7, HELLO, "hello", "")),
        ("message", {**HELLO, "text": None, "caption": "a cat"},
         (7, {**HELLO, "text": None, "caption": "a cat"}, "a cat", "")),
        ("callback_query", BUTTON, (7, BUTTON["message"], "", "yes")),
        ("inline_query", {"id": "q", "from": ANN, "query": "x"}, (7, None, "", "")),
        ("poll", {"id": "5"}, (None, None, "", "")),
    ],
)  # fmt: skip
def test_common_fields(kind, body, expected):
    ctx = context(kind, body)
    assert (ctx.user_id, ctx.message, ctx.text, ctx.data) == expected


# -- downloads


def files(web, content: bytes | None) -> None:
    """Serves getFile with a path, and the path with this content, or 404."""

    def answering(asked):
        if asked.path.endswith("/getFile"):
            return Answer({"ok": True, "result": {"file_id": "f", "file_path": "documents/a file.pdf"}})
        missing = Answer({"ok": False, "error_code": 404, "description": "Not Found"}, 404)
        return missing if content is None else Answer(content)

    web.answering = answering


def test_file_is_downloaded_by_id_or_object(web, api, tmp_path):
    files(web, b"%PDF")
    ctx = context("message", HELLO, api)
    assert ctx.download("f") == b"%PDF"
    assert ctx.download({"file_id": "f"}, to=tmp_path / "a.pdf") == b""
    assert [path.name for path in tmp_path.iterdir()] == ["a.pdf"]
    assert (tmp_path / "a.pdf").read_bytes() == b"%PDF"
    assert web.asked[1].path.startswith("/file/bot")
    assert web.asked[1].path.endswith("/documents/a%20file.pdf")


def test_failed_download_keeps_the_existing_file(web, api, tmp_path):
    files(web, None)
    (tmp_path / "a.pdf").write_bytes(b"old")
    with pytest.raises(BadRequest.__base__, match="download: Not Found"):
        context("message", HELLO, api).download("f", to=tmp_path / "a.pdf")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_interrupted_download_is_restarted(web, api, tmp_path):
    broken = iter([None, None])

    def answering(asked):
        return next(broken, Answer(b"whole"))

    web.answering = answering
    api.download("f", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"whole"
    assert len(web.asked) == 3


@pytest.fixture
def local_files(tmp_path):
    """The folder of a local server, beside a file that is not of it."""
    (tmp_path / "secret").write_bytes(b"secret")
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "cat.jpg").write_bytes(b"cat")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "in").symlink_to(folder / "cat.jpg")
    os.mkfifo(folder / "pipe")
    return folder


def test_files_of_a_local_server_are_read_directly(web, local_files, tmp_path):
    api = BotApi(web.url, TOKEN, local_files)
    assert api.download(f"{local_files}/cat.jpg") == b"cat"
    assert api.download(f"{local_files}/in") == b"cat"
    api.download(f"{local_files}/cat.jpg", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"cat"
    with pytest.raises(FileNotFoundError, match="is not on this machine: a local Bot API server stores files"):
        api.download(f"{local_files}/{TOKEN}/nowhere.jpg")
    with pytest.raises(FileNotFoundError, match="missing"):
        api.download(f"{local_files}/cat.jpg", Path(tmp_path, "missing", "copy"))


@pytest.mark.parametrize("name", ["out", "../secret", "pipe", ".", "/proc/self/environ", "/dev/zero", f"/dev/{TOKEN}"])
def test_an_answer_cannot_choose_another_file_of_this_machine(web, local_files, name):
    path = name if name.startswith("/") else f"{local_files}/{name}"
    with pytest.raises(OSError, match=r"BOT_API_FILES|not a regular file|Is a directory|not on this machine") as caught:
        BotApi(web.url, TOKEN, local_files).download(path)
    assert TOKEN not in str(caught.value)
    assert not web.asked


def test_without_a_folder_no_local_file_is_read(web, api, local_files):
    web.answer = Answer({"ok": True, "result": {"file_id": "f", "file_path": f"{local_files}/cat.jpg"}})
    with pytest.raises(PermissionError, match="set BOT_API_FILES to the folder"):
        context("message", HELLO, api).download("f")


def test_a_local_file_has_the_limit_of_a_download(web, local_files, monkeypatch):
    monkeypatch.setattr(client, "FILE_LIMITS", ResponseLimits(1.0, 2))
    with pytest.raises(OSError, match="more than 2 bytes"):
        BotApi(web.url, TOKEN, local_files).download(f"{local_files}/cat.jpg", local_files / "copy")
    assert not (local_files / "copy").exists()


@pytest.mark.parametrize("path", ["../x", "a/../../bot1:x/logOut"])
def test_a_path_cannot_leave_the_files_of_the_bot(web, api, path):
    with pytest.raises(PermissionError, match="is not a path of a file"):
        api.download(path)
    assert not web.asked


@pytest.mark.parametrize("relative", [False, True])
def test_python_telegram_bot_reads_no_other_file_of_this_machine(web, local_files, relative, monkeypatch):
    monkeypatch.chdir(local_files.parent)
    secret = "secret" if relative else f"{local_files.parent}/secret"
    answers = iter([secret, f"{local_files}/cat.jpg"])
    web.answering = lambda asked: Answer(
        {"ok": True, "result": {"file_id": "f", "file_unique_id": "f", "file_path": next(answers)}}
    )
    api = BotApi(web.url, TOKEN, local_files)

    async def content():
        bot = ptb.Bot(TOKEN, base_url=f"{web.url}/bot", base_file_url=f"{web.url}/file/bot")
        bot._request = (bot._request[0], BridgedRequest(api, bot))
        return bytes(await (await bot.get_file("f")).download_as_bytearray())

    with pytest.raises(ptb.error.NetworkError, match="is not inside of BOT_API_FILES"):
        asyncio.run(content())
    assert asyncio.run(content()) == b"cat"
