"""Keeps other people's pages out: a browser on this machine would carry their requests here.

Promises that a request is answered only under a name of this machine (a foreign name that was made to point here is
refused), and one that a page sent only if it is ours. Programs, which say no origin, are let in.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox.simulator.replies import json_reply

NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
#: What is not fetched by another site's page: our own page, and somebody who typed the address.
OURS = frozenset({"same-origin", "none"})


class Guard:
    """Around the whole application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refused := refusal(Headers(scope=scope), scope["path"])):
            await json_reply({"error": refused}, 403)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def refusal(headers: Headers, path: str) -> str | None:
    """A sentence, or None: it may pass."""
    host = headers.get("host", "")
    if host.rpartition(":")[0] not in NAMES and host not in NAMES:
        return "this page answers only under http://127.0.0.1 and http://localhost"
    origin = headers.get("origin")
    if origin is not None and origin != f"http://{host}":
        return "only this simulator's own page may ask for that"
    # A link to the page may be followed from anywhere; all else may change something, a method called by GET too.
    if path != "/" and headers.get("sec-fetch-site", "none") not in OURS:
        return "only this simulator's own page may ask for that"
    return None
