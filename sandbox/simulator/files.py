"""Files to download: GET /file/bot<token>/<file path>.

Promises that every file_id has a file, whose content tells it, and the size that getFile says. Keeps no uploads.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from sandbox.simulator.replies import refusal

if TYPE_CHECKING:
    from sandbox.simulator.bot import SimulatedBot

FOLDER = "files/"


def content_of(file_id: str) -> bytes:
    return f"the content of {file_id}\n".encode()


async def file(request: Request) -> Response:
    bot: SimulatedBot = request.app.state.bot
    path = request.path_params["path"]
    if not hmac.compare_digest(request.path_params["token"], bot.token) or not path.startswith(FOLDER):
        return refusal(404)
    return Response(content_of(path.removeprefix(FOLDER)), media_type="application/octet-stream")
