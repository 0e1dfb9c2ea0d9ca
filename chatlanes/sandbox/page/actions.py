"""The page's actions over HTTP: POST /page/….

Answers are JSON; an action that is not possible is answered with {"error": a sentence} and 400.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from chatlanes.sandbox.page.chats import user_actions
from chatlanes.sandbox.page.chats.history import Chat
from chatlanes.sandbox.page.chats.user_actions import ActionError
from chatlanes.sandbox.page.chats.views import chat_shown, message_shown
from chatlanes.sandbox.page.page import Page
from chatlanes.sandbox.simulator.calls.content.images import kind_of
from chatlanes.sandbox.simulator.responses import json_reply

LONGEST_NAME = 64
MOST_PHOTO_BYTES = 10 << 20
#: Of an album.
MOST_PHOTOS = 10

Body = dict[str, Any]


async def open_chat(page: Page, body: Body) -> Body:
    history = page.bot.history
    names = [str(name).strip()[:LONGEST_NAME] for name in body.get("users") or []]
    if not names or not all(names):
        raise ActionError("name the people in the chat")
    if body.get("type") == "private":
        return chat_shown(history.private_chat(names[0]), history.users)
    title = str(body.get("title") or "").strip()[:LONGEST_NAME] or " and ".join(names)
    return chat_shown(history.group(title, list(dict.fromkeys(names))), history.users)


async def send(page: Page, body: Body) -> Body:
    chat = _chat(page, body)
    reply_to = int(body["reply_to"]) if body.get("reply_to") else None
    said = user_actions.said_text(page.bot.history, chat, int(body["user_id"]), str(body["text"]), reply_to)
    return message_shown(page.bot.say(chat, said), page.bot.tracker.progress_table)


async def edit(page: Page, body: Body) -> Body:
    chat = _chat(page, body)
    said = user_actions.edited(page.bot.history, chat, int(body["user_id"]), int(body["message_id"]), str(body["text"]))
    return message_shown(page.bot.say(chat, said), page.bot.tracker.progress_table)


async def press(page: Page, body: Body) -> Body:
    chat = _chat(page, body)
    said = page.bot.history.message(chat.id, int(body["message_id"]))
    query = user_actions.pressed(page.bot.history, chat, int(body["user_id"]), said, str(body["data"]))
    assert said is not None  # noqa: S101 - `pressed` has checked it
    return {"update_id": page.bot.press(chat, said, query)}


async def clear(page: Page, body: Body) -> Body:
    chat = _chat(page, body)
    page.bot.history.clear(chat.id)
    page.bot.events.publish("clear", {"chat_id": chat.id})
    return {}


async def flood(page: Page, body: Body) -> Body:
    page.bot.flood(int(body.get("count", 500)))
    return {}


async def kill(page: Page, body: Body) -> Body:
    return page.kill(body.get("worker"))


async def slow(page: Page, body: Body) -> Body:
    page.make_slow(slow=bool(body["slow"]))
    return {}


async def broadcast(page: Page, body: Body) -> Body:
    await page.pause_broadcast(str(body["id"]), paused=bool(body["paused"]))
    return {}


async def restart(page: Page, body: Body) -> Body:
    page.bot.supervisor.restart()
    return {}


async def replay(page: Page, body: Body) -> Body:
    await page.replay(int(body["update_id"]))
    return {}


async def photos(request: Request) -> Response:
    page: Page = request.app.state.page

    async def sent() -> Body:
        async with request.form() as form:
            chat = _chat(page, dict(form))
            contents = [await _photo(upload) for upload in form.getlist("file")]
            if not 1 <= len(contents) <= MOST_PHOTOS:
                raise ActionError(f"send 1 to {MOST_PHOTOS} photos")
            user_id, caption = int(str(form.get("user_id"))), str(form.get("caption") or "")
            photos = [(page.bot.files.keep(name, content), content) for name, content in contents]
            said = user_actions.said_photos(page.bot.history, chat, user_id, photos, caption)
            shown = [message_shown(page.bot.say(chat, each), page.bot.tracker.progress_table) for each in said]
            return {"messages": shown}

    return await _answer(sent)


async def _photo(upload: UploadFile | str) -> tuple[str, bytes]:
    """File name and content. Raises ActionError."""
    if not isinstance(upload, UploadFile):
        raise ActionError("the request contains no file")
    content = await upload.read()
    if len(content) > MOST_PHOTO_BYTES:
        raise ActionError("a photo has at most 10 MB")
    if not kind_of(content):
        raise ActionError("this is not a picture (PNG, JPEG, GIF or WebP)")
    return upload.filename or "photo.jpg", content


def _chat(page: Page, body: Body) -> Chat:
    chat = page.bot.history.chats.get(int(str(body.get("chat_id", 0))))
    if chat is None:
        raise ActionError("the chat does not exist")
    return chat


async def _answer(act: Callable[[], Awaitable[Body]]) -> Response:
    try:
        return json_reply(await act())
    except KeyError as missing:
        return json_reply({"error": f"{missing.args[0]} is missing"}, 400)
    except (TypeError, ValueError) as error:  # ActionError, or not a number
        return json_reply({"error": str(error)}, 400)


def _doing(path: str, act: Callable[[Page, Body], Awaitable[Body]]) -> Route:
    async def endpoint(request: Request) -> Response:
        async def acted() -> Body:
            body = orjson.loads(await request.body() or b"{}")
            if not isinstance(body, dict):
                raise ActionError("the body must be an object")
            return await act(request.app.state.page, body)

        return await _answer(acted)

    return Route(path, endpoint, methods=["POST"])


ACTS = [
    _doing("/page/chats", open_chat),
    _doing("/page/send", send),
    _doing("/page/edit", edit),
    _doing("/page/press", press),
    _doing("/page/clear", clear),
    _doing("/page/flood", flood),
    _doing("/page/kill", kill),
    _doing("/page/slow", slow),
    _doing("/page/broadcast", broadcast),
    _doing("/page/restart", restart),
    _doing("/page/replay", replay),
    Route("/page/photos", photos, methods=["POST"]),
]
