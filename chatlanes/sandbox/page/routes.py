"""The page over HTTP, read-only: / and /page/….

The browser runs no script but the page's own, whatever the chats and files contain.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from chatlanes.sandbox.page.actions import ACTS
from chatlanes.sandbox.page.page import Page
from chatlanes.sandbox.simulator.calls.content.images import kind_of
from chatlanes.sandbox.simulator.calls.params import LARGEST_NUMBER
from chatlanes.sandbox.simulator.control import welcome
from chatlanes.sandbox.simulator.responses import json_reply

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
    kind = kind_of(content)
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
