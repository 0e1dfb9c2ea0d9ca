"""The Bot API over HTTP: /bot<token>/<method> and /file/bot<token>/<path>.

Answers are those of api.telegram.org: parameters in the query, as a form, as JSON or multipart; 404 for a malformed
token or an unknown method, 401 for another bot's token.
"""

import asyncio
import hmac
import re
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl

import orjson
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response

from chatlanes.telegram.methods import METHODS
from chatlanes_sandbox.simulator.bot import SimulatedBot
from chatlanes_sandbox.simulator.calls.files import FileStore
from chatlanes_sandbox.simulator.calls.params import Params, RefusedError
from chatlanes_sandbox.simulator.faults import fault_of, slowed
from chatlanes_sandbox.simulator.responses import refusal, result, result_of_updates
from chatlanes_sandbox.simulator.updates import GetUpdatesConflictError

_TOKEN = re.compile(r"\d+:[\w-]+")
#: A client may name here the update that it calls for, as `<bot>:<update_id>`.
UPDATE_HEADER = "x-update-id"
#: And the position of the call among those of the update.
PLACE_HEADER = "x-call"


async def bot_api(request: Request) -> Response:
    """One call of a method."""
    bot: SimulatedBot = request.app.state.bot
    token = request.path_params["token"]
    if not _TOKEN.fullmatch(token):
        return refusal(404)
    if not hmac.compare_digest(token.encode(), bot.token.encode()):
        return refusal(401)
    try:
        params = await _parameters(request, bot.files)
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


async def _parameters(request: Request, files: FileStore) -> Params:
    """Parameters of the body win over those of the query; values are not converted."""
    params: Params = dict(request.query_params)
    kind = request.headers.get("content-type", "")
    if kind.startswith("multipart/form-data"):
        async with request.form() as form:
            for name, value in form.items():
                params[name] = value if isinstance(value, str) else await _described(value, files)
        return params
    body = await request.body()
    if kind.startswith("application/json") and body:
        decoded = orjson.loads(body)
        return params | (decoded if isinstance(decoded, dict) else {})
    return params | dict(parse_qsl(body.decode(), keep_blank_values=True))


async def _described(upload: UploadFile, files: FileStore) -> Any:
    """A file is recorded by name and size, and by content where files are stored."""
    noted: Params = {"file": upload.filename, "bytes": upload.size}
    if files.keeps:
        noted["file_id"] = files.keep(upload.filename or "file", await upload.read())
    return noted


async def file(request: Request) -> Response:
    bot: SimulatedBot = request.app.state.bot
    known = hmac.compare_digest(request.path_params["token"].encode(), bot.token.encode())
    content = bot.files.at(request.path_params["path"]) if known else None
    return refusal(404) if content is None else Response(content, media_type="application/octet-stream")
