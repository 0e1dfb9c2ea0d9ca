"""Controls the simulator: /control/…, without a token.

An unknown field or value is refused with 400, so a misspelt fault is not ignored.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from chatlanes.sandbox.simulator.bot import SimulatedBot
from chatlanes.sandbox.simulator.faults import Fault
from chatlanes.sandbox.simulator.responses import json_reply
from chatlanes.sandbox.simulator.stream import StreamPlan
from chatlanes.sandbox.simulator.updates.webhook import Disorder

WELCOME = """A simulated Telegram Bot API on this machine. A browser that opens this address sees a page with chats,
if the simulator has one; without a page, nothing is stored.

GET  /control/stats     waiting and confirmed updates, called methods, order of the answers
GET  /control/calls     every call but getUpdates (?method=sendMessage: only those; ?after=5: not the first 5)
GET  /control/answers   per chat, the numbers of the updates it was answered, in order
POST /control/updates   a list of updates; or {"raw": [...]}, delivered unchanged
POST /control/faults    {"method": "getUpdates", "times": 3, "status": 502}, or a list of such
POST /control/stream    {"chats": 10, "rate": 50, "total": 0, "seed": 0, "first_chat": 1001}; {"stop": true}
POST /control/webhook   {"jitter_s": 0.05, "repeat": 0.1, "seed": 0}: delays and repetitions on the way to a webhook
POST /control/reset     back to the beginning
"""


async def welcome(request: Request) -> Response:
    return PlainTextResponse(WELCOME)


def stats(bot: SimulatedBot) -> dict[str, Any]:
    return bot.stats()


def answers(bot: SimulatedBot) -> dict[str, list[int]]:
    return bot.answers.numbers()


def add_updates(bot: SimulatedBot, body: Any) -> list[int | None]:
    """The ids, in order; null for an update that was dropped."""
    if isinstance(body, dict) and set(body) == {"raw"} and isinstance(body["raw"], list):
        return bot.deliver_raw(body["raw"])
    if not isinstance(body, list) or not all(isinstance(update, dict) for update in body):
        raise ValueError('a list of updates, or {"raw": [...]}')
    if not all(isinstance(update.get("update_id", 0), int) for update in body):
        raise ValueError("update_id must be a number; send other updates as raw")
    return bot.deliver(body)


def add_faults(bot: SimulatedBot, body: Any) -> int:
    """Returns the number of faults that are waiting now."""
    faults = [Fault(**fields) for fields in (body if isinstance(body, list) else [body])]
    for fault in faults:
        bot.faults.add(fault)
    return bot.faults.waiting()


def set_stream(bot: SimulatedBot, body: Any) -> bool:
    """Returns true if a stream runs now."""
    if body == {"stop": True}:
        bot.stop_stream()
        return False
    bot.start_stream(StreamPlan(**body))
    return True


def disturb(bot: SimulatedBot, body: Any) -> bool:
    bot.disturb(Disorder(**body))
    return True


def reset(bot: SimulatedBot, body: Any) -> bool:
    bot.reset()
    return True


async def calls(request: Request) -> Response:
    bot: SimulatedBot = request.app.state.bot
    method = request.query_params.get("method")
    try:
        after = int(request.query_params.get("after", 0))
    except ValueError as error:
        return json_reply({"error": str(error)}, 400)
    wanted = islice(reversed(bot.calls), max(0, bot.calls_received - after))
    return json_reply([call for call in wanted if method is None or call["method"] == method][::-1])


def _reading(path: str, read: Callable[[SimulatedBot], Any]) -> Route:
    async def endpoint(request: Request) -> Response:
        return json_reply(read(request.app.state.bot))

    return Route(path, endpoint, methods=["GET"])


def _changing(path: str, change: Callable[[SimulatedBot, Any], Any]) -> Route:
    async def endpoint(request: Request) -> Response:
        body = await request.body()
        try:
            return json_reply(change(request.app.state.bot, orjson.loads(body) if body else {}))
        except (TypeError, ValueError) as error:  # orjson's errors are ValueErrors
            return json_reply({"error": str(error)}, 400)

    return Route(path, endpoint, methods=["POST"])


ROUTES = [
    Route("/", welcome),
    Route("/control/calls", calls),
    _reading("/control/stats", stats),
    _reading("/control/answers", answers),
    _changing("/control/updates", add_updates),
    _changing("/control/faults", add_faults),
    _changing("/control/stream", set_stream),
    _changing("/control/webhook", disturb),
    _changing("/control/reset", reset),
]
