"""The simulator's HTTP server.

Prints one line on stdout when it accepts connections, and ends at once on SIGTERM: it has nothing to save. A request is
answered only under a name of this machine, and with an Origin header only if the page is ours. Programs send no origin
and are let in.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from celery_lanes.embedded_server import HOST
from chatlanes_sandbox.simulator.api import bot_api, file
from chatlanes_sandbox.simulator.bot import SimulatedBot
from chatlanes_sandbox.simulator.client import NAMES, READY
from chatlanes_sandbox.simulator.control import ROUTES
from chatlanes_sandbox.simulator.responses import json_reply, refusal

#: Sec-Fetch-Site of requests from the simulator's own page and from a typed address.
OURS = frozenset({"same-origin", "none"})


class OriginGuard:
    """Wraps the whole application. `names` are the hosts that it answers under."""

    def __init__(self, app: ASGIApp, names: frozenset[str] = NAMES) -> None:
        self._app, self._names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refused := why_refused(Headers(scope=scope), scope["path"], self._names)):
            await json_reply({"error": refused}, 403)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def why_refused(headers: Headers, path: str, names: frozenset[str]) -> str | None:
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


#: An idle connection is kept this long, as clients keep theirs in a pool between two calls.
KEEP_ALIVE_S = 75


class PortInUseError(OSError):
    """Another process listens on the port."""


def serve(
    bot: SimulatedBot,
    port: int,
    app: ASGIApp | None = None,
    started: Callable[[], None] = lambda: None,
    *,
    host: str = HOST,
    names: frozenset[str] = NAMES,
) -> None:
    """Serve until SIGTERM or SIGINT; `app` replaces the bot's own application. `started` is called on the loop.
    Requests that name another host than those in `names`, or come from a foreign page, are refused.

    Raises PortInUseError.
    """
    listener = _listener(host, port)
    config = uvicorn.Config(
        OriginGuard(app or application(bot), names),
        http=_Protocol,
        lifespan="off",
        log_level="warning",
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    _Server(config, started).run(sockets=[listener])


def application(bot: SimulatedBot, routes: Sequence[BaseRoute] = ()) -> Starlette:
    """`routes` come before its own."""
    app = Starlette(
        routes=[
            *routes,
            *ROUTES,
            Route("/bot{token}/{method}", bot_api, methods=["GET", "POST"]),
            Route("/file/bot{token}/{path:path}", file),
        ],
        exception_handlers={HTTPException: _not_found},
    )
    app.state.bot = bot
    return app


async def _not_found(request: Request, error: Exception) -> Response:
    return refusal(error.status_code if isinstance(error, HTTPException) else 404)


def _listener(host: str, port: int) -> socket.socket:
    # With the protocol named, asyncio switches Nagle's algorithm off: otherwise every second answer is 40 ms late.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise PortInUseError(f"the simulator cannot listen on {host}:{port}: {error.strerror}") from error
    return listener


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._then = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._then()
        for listener in sockets or []:
            host, port = listener.getsockname()
            print(f"{READY}http://{host}:{port}", flush=True)  # noqa: T201 - the parent process reads it

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Open long polls would take up to 50 s, and their answers do not matter any more.
        os._exit(0)


class _Protocol(H11Protocol):
    """Gives faults access to the connection of a call, to reset it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "transport": transport}
