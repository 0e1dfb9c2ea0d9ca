"""Refuses requests from foreign web pages.

A request is answered only under a name of this machine, and with an Origin header only if the page is ours. Programs
send no origin and are let in.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from chatlanes.sandbox.ports import NAMES
from chatlanes.sandbox.simulator.responses import json_reply

#: Sec-Fetch-Site of requests from the simulator's own page and from a typed address.
OURS = frozenset({"same-origin", "none"})


class OriginGuard:
    """Wraps the whole application. `names` are the hosts that it answers under."""

    def __init__(self, app: ASGIApp, names: frozenset[str] = NAMES) -> None:
        self._app, self._names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refused := refusal(Headers(scope=scope), scope["path"], self._names)):
            await json_reply({"error": refused}, 403)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def refusal(headers: Headers, path: str, names: frozenset[str]) -> str | None:
    """Why the request is refused; None if it is not."""
    host = headers.get("host", "")
    if host.rpartition(":")[0] not in names and host not in names:
        return f"this server answers only under {', '.join(sorted(names))}"
    origin = headers.get("origin")
    if origin is not None and origin != f"http://{host}":
        return "only the simulator's own page may send this request"
    # Any page may link to the index; other requests may change state, a method called by GET too.
    if path != "/" and headers.get("sec-fetch-site", "none") not in OURS:
        return "only the simulator's own page may send this request"
    return None
