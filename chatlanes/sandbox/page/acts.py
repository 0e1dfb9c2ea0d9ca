"""What one does in the page, over HTTP: POST /page/….

Promises JSON, and for what cannot be done {"error": a sentence} with 400.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from chatlanes.sandbox.page import people
from chatlanes.sandbox.page.book import Chat
from chatlanes.sandbox.page.page import Page
from chatlanes.sandbox.page.people import NotDoneError
from chatlanes.sandbox.page.shown import chat_shown, message_shown
from chatlanes.sandbox.simulator.content.pictures import kind_of
from chatlanes.sandbox.simulator.replies import json_reply

LONGEST_NAME = 64
MOST_PHOTO_BYTES = 10 << 20

Body = dict[str, Any]


async def open_chat(page: Page, body: Body) -> Body:
    book = page.bot.book
    names = [str(name).strip()[:LONGEST_NAME] for name in body.get("users") or []]
    if not names or not all(names):
        raise NotDoneError("say who is in the chat")
    if body.get("type") == "private":
        return chat_shown(book.private_chat(names[0]), book.users)
    title = str(body.get("title") or "").strip()[:LONGEST_NAME] or " and ".join(names)
    return chat_shown(book.group(title, list(dict.fromkeys(names))), book.users)


async def send(page: Page, body: Body) -> Body:
    chat = _chat(page, body)
    reply_to = int(body["reply_to"]) if body.get("reply_to") else None
    said = people.said_text(page.bot.book, chat, int(body["user_id"]), str(body["text"]), reply_to)
    return message_shown(page.bot.say(chat, said), page.bot.fates.lives)


async def edit(page: Page, body: Body) -> Body:
    chat = _chat(page, body)
    said = people.edited(page.bot.book, chat, int(body["user_id"]), int(body["message_id"]), str(body["text"]))
    return message_shown(page.bot.say(chat, said), page.bot.fates.lives)


async def press(page: Page, body: Body) -> Body:
    chat = _chat(page, body)
    said = page.bot.book.message(chat.id, int(body["message_id"]))
    query = people.pressed(page.bot.book, chat, int(body["user_id"]), said, str(body["data"]))
    assert said is not None  # noqa: S101 - else it could not be pressed
    return {"update_id": page.bot.press(chat, said, query)}


async def clear(page: Page, body: Body) -> Body:
    chat = _chat(page, body)
    page.bot.book.clear(chat.id)
    page.bot.feed.tell("clear", {"chat_id": chat.id})
    return {}


async def flood(page: Page, body: Body) -> Body:
    page.bot.flood(int(body.get("count", 500)))
    return {}


async def kill(page: Page, body: Body) -> Body:
    return page.kill(body.get("worker"))


async def restart(page: Page, body: Body) -> Body:
    page.bot.backstage.restart()
    return {}


async def replay(page: Page, body: Body) -> Body:
    await page.replay(int(body["update_id"]))
    return {}


async def photo(request: Request) -> Response:
    page: Page = request.app.state.page

    async def sent() -> Body:
        async with request.form() as form:
            upload, chat = form.get("file"), _chat(page, dict(form))
            if not isinstance(upload, UploadFile):
                raise NotDoneError("there is no file in the request")
            content = await upload.read()
            if len(content) > MOST_PHOTO_BYTES:
                raise NotDoneError("a photo has at most 10 MB")
            if not kind_of(content):
                raise NotDoneError("this is no picture: PNG, JPEG, GIF and WebP are")
            user_id, caption = int(str(form.get("user_id"))), str(form.get("caption") or "")
            file_id = page.bot.files.keep(upload.filename or "photo.jpg", content)
            said = people.said_photo(page.bot.book, chat, user_id, file_id, content, caption)
            return message_shown(page.bot.say(chat, said), page.bot.fates.lives)

    return await _answer(sent)


def _chat(page: Page, body: Body) -> Chat:
    chat = page.bot.book.chats.get(int(str(body.get("chat_id", 0))))
    if chat is None:
        raise NotDoneError("there is no such chat")
    return chat


async def _answer(act: Callable[[], Awaitable[Body]]) -> Response:
    try:
        return json_reply(await act())
    except KeyError as missing:
        return json_reply({"error": f"{missing.args[0]} is missing"}, 400)
    except (TypeError, ValueError) as error:  # NotDoneError, and what is no number
        return json_reply({"error": str(error)}, 400)


def _doing(path: str, act: Callable[[Page, Body], Awaitable[Body]]) -> Route:
    async def endpoint(request: Request) -> Response:
        async def acted() -> Body:
            body = orjson.loads(await request.body() or b"{}")
            if not isinstance(body, dict):
                raise NotDoneError("an object is expected")
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
    _doing("/page/restart", restart),
    _doing("/page/replay", replay),
    Route("/page/photo", photo, methods=["POST"]),
]
