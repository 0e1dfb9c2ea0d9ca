"""The page: its bot, the workers' events and the state of the lanes, over HTTP as one application with the simulator.

The browser runs no script but the page's own, whatever the chats and files contain. Actions are POSTs with JSON; one
that is not possible is answered with {"error": a sentence} and 400.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
from redis.exceptions import RedisError
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from celery_lanes.protocol import Store
from chatlanes.broadcasts import Feeder, UnknownBroadcastError
from chatlanes.settings import Settings, SettingsError, load
from chatlanes.settings.checks import NO_COLLECT
from chatlanes.updates.connection import connect_to
from chatlanes_sandbox.page import user_actions
from chatlanes_sandbox.page.bot import PageBot
from chatlanes_sandbox.page.calls import drafts_shown
from chatlanes_sandbox.page.history import Chat
from chatlanes_sandbox.page.lanes import KnownWorkers, LaneSnapshot, LaneWatch, lanes_shown
from chatlanes_sandbox.page.order_audit import OrderAudit
from chatlanes_sandbox.page.progress import start_receiving, timeline
from chatlanes_sandbox.page.storage import PageStorage, StorageError
from chatlanes_sandbox.page.user_actions import ActionError
from chatlanes_sandbox.page.views import chat_shown, message_shown
from chatlanes_sandbox.simulator.calls.files import image_kind
from chatlanes_sandbox.simulator.calls.params import LARGEST_NUMBER
from chatlanes_sandbox.simulator.control import welcome
from chatlanes_sandbox.simulator.responses import json_reply
from chatlanes_sandbox.simulator.server import application, serve

#: Of a call with "slow handlers": longer than it takes to press a button.
SLOW_S = 3.0


class Page:
    """One per process."""

    def __init__(self, bot: PageBot, settings: Settings) -> None:
        self.bot = bot
        self._settings = settings
        self._snapshot = LaneSnapshot()
        self._lanes: dict[str, Any] = {}
        self._listening: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Called on the server's event loop."""
        self._listening = asyncio.get_running_loop().create_task(self.bot.supervisor.listen())
        start_receiving(self.bot.tracker.receive)
        LaneWatch(self._settings, self._asks, self._saw).start()

    def _asks(self) -> frozenset[str] | None:
        asked = self.bot.tracker.asks()
        return asked if asked or len(self.bot.events) else None

    def _saw(self, snapshot: LaneSnapshot) -> None:
        self._snapshot = snapshot
        self.bot.tracker.see(snapshot, self.bot.updates.first_id)
        self._show_lanes()

    def _show_lanes(self) -> None:
        lanes = self.lanes()
        if lanes != self._lanes:
            self._lanes = lanes
            self.bot.events.publish("lanes", lanes)

    def lanes(self) -> dict[str, Any]:
        titles = {chat.id: chat.title for chat in self.bot.history.chats.values()}
        audit, supervisor = self.bot.tracker.audit, self.bot.supervisor
        shown = lanes_shown(self._snapshot, self.bot.me()["id"], titles, self._workers())
        for broadcast in shown["broadcasts"]:
            broadcast["elsewhere"] = self.bot.elsewhere[broadcast["id"]]
        return {
            **shown,
            "slow": self.bot.slow_s > 0,
            "stream": self.bot.stream_shown(),
            "killed": supervisor.killed,
            "lost": audit.lost,
            "out_of_order": audit.out_of_order,
            "repeated": audit.repeated,
            "uncertain": audit.uncertain,
        }

    def _workers(self) -> KnownWorkers:
        running = self.bot.tracker.runs_since_s(self._snapshot)
        return KnownWorkers(self.bot.supervisor.workers, self.bot.supervisor.names, running)

    def snapshot(self) -> dict[str, Any]:
        me, history = self.bot.me(), self.bot.history
        path = self._settings.bot if self.bot.supervisor.has_supervisor else ""  # a simulator alone does not know it
        about = {"id": me["id"], "username": me["username"], "first_name": me["first_name"], "path": path}
        return {
            "bot": about,
            "chats": [chat_shown(chat, history.users) for chat in history.chats.values()],
            "messages": [message_shown(said, self.bot.tracker.progress_table) for said in history.last()],
            "drafts": drafts_shown(self.bot.chats.drafts),
            "lanes": self.lanes(),
            "problems": list(self.bot.supervisor.problems.values()),
        }

    def update(self, update_id: int) -> dict[str, Any] | None:
        """All that is known of an update; None: nothing."""
        update, table = self.bot.update_log.update(update_id), self.bot.tracker.progress_table
        if update is None:
            return None
        own, run = table.get(update_id), table.run_of(update_id)
        calls = self.bot.update_log.calls_of(run.update_id if run else update_id)
        names = ("appended_s", "started_s", "ended_s")
        return {
            "update": update,
            "state": run and run.state,
            "attempt": run.attempt if run else 0,
            "times": {"telegram_s": own and own.telegram_s} | {name: getattr(run, name, None) for name in names},
            "worker": run and run.worker,
            "calls": calls,
            "traceback": run and run.traceback,
            "group": run.group if run else [],
            "steps": timeline(run, own.telegram_s, calls) if run and own else [],
        }

    def kill(self, name: str | None) -> dict[str, Any]:
        killed = self.bot.supervisor.kill(name, self._workers().busy(self._snapshot))
        if killed is None:
            raise ActionError(f"{name} is not running at the moment" if name else "no worker is running at the moment")
        self._show_lanes()  # now, not at the next look
        return killed

    def make_slow(self, *, slow: bool) -> None:
        """Slow down each call of a handler, so that a kill hits a handler that runs."""
        self.bot.slow_s = SLOW_S if slow else 0.0
        self._show_lanes()

    async def pause_broadcast(self, id_: str, *, paused: bool) -> None:
        """Pause a broadcast, or resume it."""

        def change(store: Store) -> bool:
            feeder = Feeder(store, self._settings)
            if paused:
                return feeder.broadcasts.set_state(id_, "paused", only_from=("running",))
            return feeder.resume(id_)

        if not await self._changed(change):
            raise ActionError(f"broadcast {id_} is not {'running' if paused else 'paused'}")

    async def replay(self, update_id: int) -> None:
        """Put a buried update back at the end of its lanes."""
        run = self.bot.tracker.progress_table.run_of(update_id)
        update_id = run.update_id if run else update_id
        message_id = f"{self.bot.me()['id']}:{update_id}"
        if not await self._changed(lambda store: store.replay(message_id)):
            raise ActionError(f"update {update_id} is not buried")
        self.bot.tracker.replayed(update_id)

    async def _changed(self, change: Callable[[Store], bool]) -> bool:
        """Make a change in Redis. Returns the answer of `change`; raises ActionError."""

        def changed() -> bool:
            with connect_to(self._settings) as client:
                return change(Store(client))

        try:
            return await asyncio.to_thread(changed)
        except RedisError as error:
            raise ActionError(f"Redis does not answer: {error}") from error
        except UnknownBroadcastError as error:
            raise ActionError(str(error)) from error


# ── actions ──

LONGEST_NAME = 64
MOST_PHOTO_BYTES = 10 << 20
#: Of an album.
MOST_PHOTOS = 10

Body = dict[str, Any]


def open_chat(page: Page, body: Body) -> Body:
    history = page.bot.history
    names = [str(name).strip()[:LONGEST_NAME] for name in body.get("users") or []]
    if not names or not all(names):
        raise ActionError("name the people in the chat")
    if body.get("type") == "private":
        return chat_shown(history.private_chat(names[0]), history.users)
    title = str(body.get("title") or "").strip()[:LONGEST_NAME] or " and ".join(names)
    return chat_shown(history.group(title, list(dict.fromkeys(names))), history.users)


def send(page: Page, body: Body) -> Body:
    chat = _chat(page, body)
    reply_to = int(body["reply_to"]) if body.get("reply_to") else None
    secrets = page.bot.chats.ephemeral_commands()
    user_id, text = int(body["user_id"]), str(body["text"])
    said = user_actions.said_text(page.bot.history, chat, user_id, text, reply_to, secrets=secrets)
    return message_shown(page.bot.say(chat, said), page.bot.tracker.progress_table)


def edit(page: Page, body: Body) -> Body:
    chat = _chat(page, body)
    said = user_actions.edited(page.bot.history, chat, int(body["user_id"]), int(body["message_id"]), str(body["text"]))
    return message_shown(page.bot.say(chat, said), page.bot.tracker.progress_table)


def press(page: Page, body: Body) -> Body:
    chat = _chat(page, body)
    said = page.bot.history.message(chat.id, int(body["message_id"]))
    query = user_actions.pressed(page.bot.history, chat, int(body["user_id"]), said, str(body["data"]))
    assert said is not None  # noqa: S101 - `pressed` has checked it
    return {"update_id": page.bot.press(chat, said, query)}


def stop(page: Page, body: Body) -> None:
    page.bot.press_stop(_chat(page, body).id, int(body.get("message_thread_id") or 0))


def clear(page: Page, body: Body) -> None:
    chat = _chat(page, body)
    page.bot.history.clear(chat.id)
    page.bot.events.publish("clear", {"chat_id": chat.id})


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


def _doing(path: str, act: Callable[[Page, Body], Any]) -> Route:
    """Answers with what `act` returns, plain or async: an object, or {} for None."""

    async def endpoint(request: Request) -> Response:
        async def acted() -> Body:
            body = orjson.loads(await request.body() or b"{}")
            if not isinstance(body, dict):
                raise ActionError("the body must be an object")
            answer = act(request.app.state.page, body)
            shown: Body | None = await answer if isawaitable(answer) else answer
            return shown or {}

        return await _answer(acted)

    return Route(path, endpoint, methods=["POST"])


ACTS = [
    _doing("/page/chats", open_chat),
    _doing("/page/send", send),
    _doing("/page/edit", edit),
    _doing("/page/press", press),
    _doing("/page/stop", stop),
    _doing("/page/clear", clear),
    _doing("/page/flood", lambda page, body: page.bot.flood(int(body.get("count", 500)))),
    _doing("/page/kill", lambda page, body: page.kill(body.get("worker"))),
    _doing("/page/slow", lambda page, body: page.make_slow(slow=bool(body["slow"]))),
    _doing("/page/broadcast", lambda page, body: page.pause_broadcast(str(body["id"]), paused=bool(body["paused"]))),
    _doing("/page/restart", lambda page, body: page.bot.supervisor.restart()),
    _doing("/page/replay", lambda page, body: page.replay(int(body["update_id"]))),
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
    """Until SIGTERM or SIGINT. Its chats are kept in `file`; one that cannot be used ends the process with a
    sentence, as do wrong settings. Raises PortInUseError.
    """
    try:
        settings, storage = load(), PageStorage(file)
    except (SettingsError, StorageError) as error:
        sys.exit(str(error))
    audit = OrderAudit(collects=settings.collect != NO_COLLECT, interrupts=settings.interrupt == "on")
    order_by = settings.order_by
    bot = PageBot(token, storage, first_update_id=first_update_id, order_by=order_by, audit=audit, quirks=quirks)
    page = Page(bot, settings)
    app = application(bot, ROUTES)
    app.state.page = page
    serve(bot, port, app, started=page.start)
