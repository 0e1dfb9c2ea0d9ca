"""The page over HTTP: /, /page/….

Promises JSON, and for what cannot be done {"error": a sentence} with 4xx.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from sandbox.page import people
from sandbox.page.book import Chat
from sandbox.page.bot import PageBot
from sandbox.page.people import NotDoneError
from sandbox.page.pictures import kind_of
from sandbox.page.shown import chat_shown, message_shown
from sandbox.simulator.control import welcome
from sandbox.simulator.replies import json_reply

STATIC = Path(__file__).with_name("static")
INDEX = "index.html"
#: Nothing from elsewhere, and no script but ours: texts are texts.
POLICY = "default-src 'self'; img-src 'self' data: blob:; style-src 'self'; frame-ancestors 'none'; base-uri 'none'"
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"}

Body = dict[str, Any]


async def index(request: Request) -> Response:
    """For a browser the page, for others the text."""
    if "text/html" not in request.headers.get("accept", ""):
        return await welcome(request)
    return _static(INDEX)


async def static(request: Request) -> Response:
    return _static(request.path_params["file"])


def _static(name: str) -> Response:
    file = STATIC / name
    if not file.resolve().is_relative_to(STATIC.resolve()) or not file.is_file():
        return json_reply({"error": f"there is no {name}"}, 404)
    return FileResponse(file, headers=HEADERS)


async def file(request: Request) -> Response:
    """What was sent. Only pictures are shown; anything else is saved."""
    bot: PageBot = request.app.state.bot
    found = bot.kept.file(request.path_params["file_id"])
    if found is None:
        return json_reply({"error": "there is no such file any more"}, 404)
    name, content = found
    kind = kind_of(content)
    how = "inline" if kind else "attachment"
    headers = {**HEADERS, "Content-Disposition": f"{how}; filename*=UTF-8''{_quoted(name)}"}
    return Response(content, headers=headers, media_type=kind or "application/octet-stream")


def _quoted(name: str) -> str:
    from urllib.parse import quote

    return quote(name, safe="")


async def events(request: Request) -> Response:
    bot: PageBot = request.app.state.bot
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(bot.feed.follow(lambda: snapshot(bot)), media_type="text/event-stream", headers=headers)


def snapshot(bot: PageBot) -> Body:
    me = bot.me()
    counts = dict.fromkeys(("waiting", "running", "delayed", "buried", "settled", "appended"), 0)
    lanes: Body = {"counts": counts, "rate_s": 0.0, "rows": [], "workers": []}
    lanes |= {"killed": 0, "lost": 0, "out_of_order": 0, "repeated": 0}
    about = {"id": me["id"], "username": me["username"], "first_name": me["first_name"], "path": ""}
    return {"bot": about, **bot.snapshot(), "lanes": lanes, "problems": []}


# ── what people do ──


async def open_chat(bot: PageBot, body: Body) -> Body:
    names = [str(name).strip()[:64] for name in body.get("users") or []]
    title = str(body.get("title") or "").strip()[:128]
    if not names or not all(names):
        raise NotDoneError("say who is in the chat")
    if body.get("type") == "private":
        chat = bot.book.private_chat(names[0])
    else:
        chat = bot.book.group(title or " and ".join(names), list(dict.fromkeys(names)))
    return chat_shown(chat, bot.book.users)


async def send(bot: PageBot, body: Body) -> Body:
    chat = _chat(bot, body)
    reply_to = int(body["reply_to"]) if body.get("reply_to") else None
    said = people.said_text(bot.book, chat, int(body["user_id"]), str(body["text"]), reply_to)
    return message_shown(bot.say(chat, said), bot.lives)


async def edit(bot: PageBot, body: Body) -> Body:
    chat = _chat(bot, body)
    said = people.edited(bot.book, chat, int(body["user_id"]), int(body["message_id"]), str(body["text"]))
    return message_shown(bot.say(chat, said), bot.lives)


async def press(bot: PageBot, body: Body) -> Body:
    chat = _chat(bot, body)
    message_id = int(body["message_id"])
    query = people.pressed(bot.book, chat, int(body["user_id"]), message_id, str(body["data"]))
    said = bot.book.message(chat.id, message_id)
    assert said is not None  # noqa: S101 - else it could not be pressed
    return {"update_id": bot.press(chat, said, query)}


async def clear(bot: PageBot, body: Body) -> Body:
    bot.book.clear(_chat(bot, body).id)
    return {}


async def photo(request: Request) -> Response:
    bot: PageBot = request.app.state.bot

    async def sent() -> Body:
        async with request.form() as form:
            upload = form.get("file")
            if not isinstance(upload, UploadFile):
                raise NotDoneError("there is no file in the request")
            content = await upload.read()
            chat = _chat(bot, dict(form))
            if not kind_of(content):
                raise NotDoneError("this is no picture: PNG, JPEG, GIF and WebP are")
            user_id, caption = int(str(form.get("user_id"))), str(form.get("caption") or "")
            file_id = bot.files.keep(upload.filename or "photo.jpg", content)
            said = people.said_photo(bot.book, chat, user_id, file_id, content, caption)
            return message_shown(bot.say(chat, said), bot.lives)

    return await _answer(sent)


def _chat(bot: PageBot, body: Body) -> Chat:
    chat = bot.book.chats.get(int(str(body.get("chat_id", 0))))
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


def _doing(path: str, act: Callable[[PageBot, Body], Awaitable[Body]]) -> Route:
    async def endpoint(request: Request) -> Response:
        async def acted() -> Body:
            body = orjson.loads(await request.body() or b"{}")
            if not isinstance(body, dict):
                raise NotDoneError("an object is expected")
            return await act(request.app.state.bot, body)

        return await _answer(acted)

    return Route(path, endpoint, methods=["POST"])


ROUTES = [
    Route("/", index),
    Route("/page/events", events),
    Route("/page/files/{file_id}", file),
    _doing("/page/chats", open_chat),
    _doing("/page/send", send),
    _doing("/page/edit", edit),
    _doing("/page/press", press),
    _doing("/page/clear", clear),
    Route("/page/photo", photo, methods=["POST"]),
    Route("/page/{file}", static),
]
