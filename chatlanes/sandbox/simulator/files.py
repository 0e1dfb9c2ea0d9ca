"""Files to download: GET /file/bot<token>/<file path>.

Promises that every file_id has a file, whose content tells it, and the size that getFile says. Keeps no uploads.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from chatlanes.sandbox.simulator.replies import refusal

if TYPE_CHECKING:
    from chatlanes.sandbox.simulator.bot import SimulatedBot

FOLDER = "files/"


class Files:
    """Those of one bot."""

    #: Whether uploads are handed to `keep`.
    keeps = False

    def keep(self, name: str, content: bytes) -> str:
        """The file_id of an upload."""
        raise NotImplementedError

    def content_of(self, file_id: str) -> bytes:
        return f"the content of {file_id}\n".encode()

    def path_of(self, file_id: str) -> str:
        return f"{FOLDER}{file_id}"

    def at(self, path: str) -> bytes | None:
        """What is at a path that `path_of` gave."""
        return self.content_of(path.removeprefix(FOLDER)) if path.startswith(FOLDER) else None


async def file(request: Request) -> Response:
    bot: SimulatedBot = request.app.state.bot
    known = hmac.compare_digest(request.path_params["token"].encode(), bot.token.encode())
    content = bot.files.at(request.path_params["path"]) if known else None
    return refusal(404) if content is None else Response(content, media_type="application/octet-stream")
