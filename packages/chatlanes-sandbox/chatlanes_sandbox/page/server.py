"""The page over HTTP: / and /page/…, as one application with the simulator.

The browser runs no script but the page's own, whatever the chats and files contain. Actions are POSTs with JSON; one
that is not possible is answered with {"error": a sentence} and 400.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from chatlanes.settings import SettingsError, load
from chatlanes.settings.checks import NO_COLLECT
from chatlanes_sandbox.page import user_actions
from chatlanes_sandbox.page.bot import PageBot
from chatlanes_sandbox.page.history import Chat
from chatlanes_sandbox.page.order_audit import OrderAudit
from chatlanes_sandbox.page.page import Page
from chatlanes_sandbox.page.storage import PageStorage, StorageInUseError
from chatlanes_sandbox.page.user_actions import ActionError
from chatlanes_sandbox.page.views import chat_shown, message_shown
from chatlanes_sandbox.simulator.calls.files import image_kind
from chatlanes_sandbox.simulator.calls.params import LARGEST_NUMBER
from chatlanes_sandbox.simulator.control import welcome
from chatlanes_sandbox.simulator.responses import json_reply
from chatlanes_sandbox.simulator.server import application, serve

# ── actions ──

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
    secrets = page.bot.chats.ephemeral_commands()
    user_id, text = int(body["user_id"]), str(body["text"])
    said = user_actions.said_text(page.bot.history, chat, user_id, text, reply_to, secrets=secrets)
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


async def stop(page: Page, body: Body) -> None:
    page.bot.press_stop(_chat(page, body).id, int(body.get("message_thread_id") or 0))


async def clear(page: Page, body: Body) -> None:
    chat = _chat(page, body)
    page.bot.history.clear(chat.id)
    page.bot.events.publish("clear", {"chat_id": chat.id})


async def flood(page: Page, body: Body) -> None:
    page.bot.flood(int(body.get("count", 500)))


async def kill(page: Page, body: Body) -> Body:
    return page.kill(body.get("worker"))


async def slow(page: Page, body: Body) -> None:
    page.make_slow(slow=bool(body["slow"]))


async def broadcast(page: Page, body: Body) -> None:
    await page.pause_broadcast(str(body["id"]), paused=bool(body["paused"]))


async def restart(page: Page, body: Body) -> None:
    page.bot.supervisor.restart()


async def replay(page: Page, body: Body) -> None:
    await page.replay(int(body["update_id"]))


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
    if not image_kind(content):
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


def _doing(path: str, act: Callable[[Page, Body], Awaitable[Body | None]]) -> Route:
    """Answers with what `act` returns, or with {}."""

    async def endpoint(request: Request) -> Response:
        async def acted() -> Body:
            body = orjson.loads(await request.body() or b"{}")
            if not isinstance(body, dict):
                raise ActionError("the body must be an object")
            return await act(request.app.state.page, body) or {}

        return await _answer(acted)

    return Route(path, endpoint, methods=["POST"])


ACTS = [
    _doing("/page/chats", open_chat),
    _doing("/page/send", send),
    _doing("/page/edit", edit),
    _doing("/page/press", press),
    _doing("/page/stop", stop),
    _doing("/page/clear", clear),
    _doing("/page/flood", flood),
    _doing("/page/kill", kill),
    _doing("/page/slow", slow),
    _doing("/page/broadcast", broadcast),
    _doing("/page/restart", restart),
    _doing("/page/replay", replay),
    Route("/page/photos", photos, methods=["POST"]),
]


# ── reading ──

STATIC = Path(__file__).with_name("static")
INDEX = "index.html"
#: No resources from elsewhere and no other scripts: texts stay texts.
POLICY = "default-src 'self'; img-src 'self' data: blob:; style-src 'self'; frame-ancestors 'none'; base-uri 'none'"
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"}


async def index(request: Request) -> Response:
    """The page for a browser, a text for other clients."""
    if "text/html" not in request.headers.get("accept", ""):
        return await welcome(request)
    return _static(INDEX)


async def static(request: Request) -> Response:
    return _static(request.path_params["file"])


def _static(name: str) -> Response:
    if name not in os.listdir(STATIC):
        return json_reply({"error": f"{name} does not exist"}, 404)
    return FileResponse(STATIC / name, headers=HEADERS)


async def file(request: Request) -> Response:
    """A file of a chat. Browsers show pictures and save other files."""
    page: Page = request.app.state.page
    found = page.bot.storage.file(request.path_params["file_id"])
    if found is None:
        return json_reply({"error": "the file does not exist any more"}, 404)
    name, content = found
    kind = image_kind(content)
    shown = f"{'inline' if kind else 'attachment'}; filename*=UTF-8''{quote(name, safe='')}"
    headers = {**HEADERS, "Content-Disposition": shown}
    return Response(content, headers=headers, media_type=kind or "application/octet-stream")


async def events(request: Request) -> Response:
    page: Page = request.app.state.page
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(page.bot.events.follow(page.snapshot), media_type="text/event-stream", headers=headers)


async def update(request: Request) -> Response:
    page: Page = request.app.state.page
    number = request.path_params["update_id"]
    found = page.update(number) if number <= LARGEST_NUMBER else None
    return json_reply({"error": "the update is not stored any more"}, 404) if found is None else json_reply(found)


ROUTES = [
    Route("/", index),
    Route("/page/events", events),
    Route("/page/files/{file_id}", file),
    Route("/page/updates/{update_id:int}", update),
    *ACTS,
    Route("/page/{file}", static),
]


# ── the application ──


def serve_page(token: str, file: Path, port: int, *, first_update_id: int, quirks: bool) -> None:
    """Until SIGTERM or SIGINT. Its chats are kept in `file`; one that another page has ends the process with a
    sentence, as do wrong settings. Raises PortInUseError.
    """
    try:
        settings, storage = load(), PageStorage(file)
    except (SettingsError, StorageInUseError) as error:
        sys.exit(str(error))
    audit = OrderAudit(collects=settings.collect != NO_COLLECT, interrupts=settings.interrupt == "on")
    order_by = settings.order_by
    bot = PageBot(token, storage, first_update_id=first_update_id, order_by=order_by, audit=audit, quirks=quirks)
    page = Page(bot, settings)
    app = application(bot, ROUTES)
    app.state.page = page
    serve(bot, port, app, started=page.start)
