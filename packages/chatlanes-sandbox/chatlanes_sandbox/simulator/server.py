"""The simulator over HTTP: /bot<token>/<method>, /file/bot<token>/<path>, and its control interface (control.py).

Answers are those of api.telegram.org: 404 for a malformed token or an unknown method, 401 for another bot's token. A
request is answered only under a name of this machine, and with an Origin header only if the page is ours. Prints one
line on stdout when it accepts connections, and ends at once on SIGTERM: it has nothing to save.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

import orjson
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
from chatlanes.telegram.methods import METHODS
from chatlanes_sandbox.simulator.bot import SimulatedBot
from chatlanes_sandbox.simulator.calls.params import Params, RefusedError, parameters_of
from chatlanes_sandbox.simulator.client import NAMES, READY
from chatlanes_sandbox.simulator.control import ROUTES
from chatlanes_sandbox.simulator.faults import fault_of, slowed
from chatlanes_sandbox.simulator.responses import json_reply, refusal, result, result_of_updates
from chatlanes_sandbox.simulator.updates import GetUpdatesConflictError

TOKEN = re.compile(r"\d+:[\w-]+")
#: A client may name here the update that it calls for, as `<bot>:<update_id>`.
UPDATE_HEADER = "x-update-id"
#: And the position of the call among those of the update.
PLACE_HEADER = "x-call"


async def bot_api(request: Request) -> Response:
    """One call of a method."""
    bot: SimulatedBot = request.app.state.bot
    token = request.path_params["token"]
    if not TOKEN.fullmatch(token):
        return refusal(404)
    if not hmac.compare_digest(token.encode(), bot.token.encode()):
        return refusal(401)
    try:
        params = await parameters_of(request, bot.files)
    except (orjson.JSONDecodeError, UnicodeDecodeError):
        return refusal(400, "Bad Request: can't parse the request's body")
    method = METHODS.get(request.path_params["method"].lower())
    if method is None:
        return refusal(404, "Not Found: method not found")
    return await _answer(request, bot, method, params)


async def _answer(request: Request, bot: SimulatedBot, method: str, params: Params) -> Response:
    call = bot.received(method, params, request.headers.get(UPDATE_HEADER))
    if place := request.headers.get(PLACE_HEADER):
        call["place"] = place
    if "update" in call and not await _on_its_way(request, bot.slow_s):
        return Response()  # not sent
    fault = fault_of(bot.faults, method, params)
    await fault.hang()
    if fault.loses_the_answer:
        if fault.takes_effect:
            await _carry_out(request, bot, call)
        else:
            call["error"] = fault.reason
        return await fault.respond(request)
    response = await _carry_out(request, bot, call)
    return slowed(response, fault.slow_s) if fault.slow_s else response


async def _on_its_way(request: Request, seconds: float) -> bool:
    """False if the caller has hung up meanwhile, as when it is killed: then its call has not arrived."""
    if not seconds:
        return True
    with suppress(TimeoutError):
        await asyncio.wait_for(_hung_up(request), seconds)
        return False
    return True


async def _carry_out(request: Request, bot: SimulatedBot, call: dict[str, Any]) -> Response:
    method, params = call["method"], call["params"]
    try:
        if method == "getUpdates":
            return result_of_updates(await bot.get_updates(params, lambda: _hung_up(request)))
        answer = bot.carry_out(call)
        done = result(answer)
    except GetUpdatesConflictError as conflict:
        return refusal(409, str(conflict))
    except RefusedError as refused:
        call["error"] = str(refused)
        return refusal(400, str(refused))
    except orjson.JSONEncodeError:  # a parameter that the answer repeats was nested too deep
        return refusal(400, "Bad Request: can't parse the parameters")
    call["ok"], call["result"] = True, answer
    return done


async def _hung_up(request: Request) -> None:
    """Returns when the caller has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def file(request: Request) -> Response:
    bot: SimulatedBot = request.app.state.bot
    known = hmac.compare_digest(request.path_params["token"].encode(), bot.token.encode())
    content = bot.files.at(request.path_params["path"]) if known else None
    return refusal(404) if content is None else Response(content, media_type="application/octet-stream")


# ── the server ──

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
    Requests that name another host than those in `names` are refused, as are foreign pages. Raises PortInUseError.
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
        raise PortInUseError(
            f"the simulator cannot listen on {host}:{port}: {error.strerror}. Give another --port"
        ) from error
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
