"""Controls the simulator: /control/…, without a token.

An unknown field or value is refused with 400, so a misspelt fault is not ignored.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from chatlanes_sandbox.simulator.bot import SimulatedBot
from chatlanes_sandbox.simulator.calls.chats import LONGEST_TEXT
from chatlanes_sandbox.simulator.calls.markup import marked
from chatlanes_sandbox.simulator.calls.params import sends_messages
from chatlanes_sandbox.simulator.examples import examples
from chatlanes_sandbox.simulator.faults import Fault
from chatlanes_sandbox.simulator.responses import json_reply
from chatlanes_sandbox.simulator.stream import StreamPlan, Update
from chatlanes_sandbox.simulator.webhook import Disorder

WELCOME = """A simulated Telegram Bot API on this machine. A browser that opens this address sees a page with chats,
if the simulator has one; without a page, nothing is stored.

POST /control/messages  {"chat_id": 7, "text": "hi"}: a user writes this; returns the update. Also "user_id",
                        "message" with more fields of the Message; "ephemeral": true in a group
POST /control/presses   {"chat_id": 7, "message_id": 2, "button": "Yes"}: a user presses a button of the bot's message;
                        of an ephemeral one, message_id is its ephemeral_message_id
GET  /control/drafts    the drafts that are shown now
POST /control/stops     {"chat_id": 7}: a user presses the Stop button of a draft. Also "message_thread_id"
GET  /control/messages  the calls that put a message into a chat, in order: {"number", "at", "method", "params", "ok",
                        "result"} (?after=5: without the calls up to number 5)
GET  /control/calls     the same for every call but getUpdates (?method=editMessageText: only those)
GET  /control/stats     waiting and confirmed updates, called methods, order of the answers
GET  /control/answers   per chat, the numbers of the updates it was answered, in order
POST /control/updates   a list of updates; or {"raw": [...]}, delivered unchanged
POST /control/examples  {"chat_id": 7}: one update of each kind. Also "user_id", and "names": ["poll", "subscription"]
POST /control/faults    {"method": "getUpdates", "times": 3, "status": 502}, or a list of such
POST /control/stream    {"chats": 10, "rate": 50, "total": 0, "seed": 0, "first_chat": 1001}; {"stop": true}
POST /control/webhook   {"jitter_s": 0.05, "repeat": 0.1, "seed": 0}: delays and repetitions on the way to a webhook
POST /control/reset     back to the beginning
"""


async def welcome(request: Request) -> Response:
    return PlainTextResponse(WELCOME)


#: The fields of a request, with their types.
MESSAGE = {"chat_id": int, "text": str, "user_id": int, "message": dict, "ephemeral": bool}
PRESS = {"chat_id": int, "message_id": int, "button": str, "user_id": int}
STOP = {"chat_id": int, "message_thread_id": int}
EXAMPLES = {"chat_id": int, "user_id": int, "names": list}
FAULT = {
    "method": str,
    "chat_id": object,
    "times": int,
    "hang_s": float,
    "takes_effect": bool,
    "reset": bool,
    "status": int,
    "description": str,
    "retry_after": int,
    "body": str,
    "slow_s": float,
}
STREAM = {"chats": int, "rate": float, "total": int, "seed": int, "first_chat": int}
DISORDER = {"jitter_s": float, "repeat": float, "seed": int}
NAMES = {int: "a whole number", str: "a string", dict: "an object", bool: "true or false", list: "a list"}
NAMES |= {float: "a number", object: "a whole number or a name with @"}
#: What has more than one type in JSON.
TYPES: dict[type, tuple[type, ...]] = {float: (int, float), object: (int, str)}


def write(bot: SimulatedBot, body: Any) -> Update | None:
    """Returns the update; null if the bot does not receive messages."""
    fields = checked(body, MESSAGE, "chat_id")
    text = fields.get("text", "")
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"a message has at most {LONGEST_TEXT} characters")
    content = {**marked({"text": text}, "text"), **fields.get("message", {})}
    if not text.strip() and not fields.get("message"):
        raise ValueError("an empty message cannot be sent: give text, or fields of the Message in message")
    is_ephemeral = fields.get("ephemeral", False)
    if is_ephemeral and fields["chat_id"] > 0:
        raise ValueError("ephemeral messages are written in groups only")
    return bot.write(fields["chat_id"], user_of(fields), content, is_ephemeral=is_ephemeral)


def press(bot: SimulatedBot, body: Any) -> Update | None:
    """Returns the update; null if the bot does not receive callback queries."""
    fields = checked(body, PRESS, "chat_id", "message_id", "button")
    return bot.press_button(fields["chat_id"], user_of(fields), fields["message_id"], fields["button"])


def stop(bot: SimulatedBot, body: Any) -> Update | None:
    """Returns the update; null if the bot does not receive this kind."""
    fields = checked(body, STOP, "chat_id")
    return bot.press_stop(fields["chat_id"], fields.get("message_thread_id", 0))


def add_examples(bot: SimulatedBot, body: Any) -> dict[str, int | None]:
    """Name -> update_id; null for an update that was dropped."""
    fields = checked(body, EXAMPLES, "chat_id")
    known = examples(fields["chat_id"], user_of(fields))
    names = fields.get("names", list(known))
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{unknown[0]} is unknown; the names are {', '.join(known)}")
    return dict(zip(names, bot.deliver([known[name] for name in names]), strict=True))


def user_of(fields: dict[str, Any]) -> int:
    """A private chat has the id of its user."""
    chat_id: int = fields["chat_id"]
    user_id: int = fields.get("user_id", chat_id)
    if user_id <= 0:
        raise ValueError("user_id must be above 0, and a group (a chat_id below 0) needs one")
    if chat_id > 0 and user_id != chat_id:
        raise ValueError("in a private chat user_id is the chat_id: leave it out")
    return user_id


def checked(body: Any, known: Mapping[str, type], *needed: str) -> dict[str, Any]:
    """The fields of a request; one that is null counts as left out. Raises ValueError."""
    given = body if isinstance(body, dict) else {}
    fields = {name: value for name, value in given.items() if value is not None or name not in known}
    for name, value in fields.items():
        if name not in known:
            raise ValueError(f"{name} is unknown; the fields are {', '.join(known)}")
        if type(value) not in TYPES.get(known[name], (known[name],)):
            raise ValueError(f"{name} must be {NAMES[known[name]]}")
    missing = [name for name in needed if name not in fields]
    if missing:
        raise ValueError(f"{' and '.join(missing)} must be given; the fields are {', '.join(known)}")
    return fields


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
    given = body if isinstance(body, list) else [body]
    if not all(isinstance(fields, dict) for fields in given):
        raise ValueError("a fault, which is an object, or a list of such")
    faults = [Fault(**checked(fields, FAULT)) for fields in given]
    bot.faults += faults
    return len(bot.faults)


def set_stream(bot: SimulatedBot, body: Any) -> bool:
    """Returns true if a stream runs now."""
    if body == {"stop": True}:
        bot.stop_stream()
        return False
    bot.start_stream(StreamPlan(**checked(body, STREAM)))
    return True


def disturb(bot: SimulatedBot, body: Any) -> bool:
    bot.disturb(Disorder(**checked(body, DISORDER)))
    return True


def reset(bot: SimulatedBot, body: Any) -> bool:
    bot.reset()
    return True


async def calls(request: Request) -> Response:
    method = request.query_params.get("method")
    return _calls(request, lambda call: method is None or call["method"] == method)


async def messages(request: Request) -> Response:
    return _calls(request, lambda call: call["ok"] and sends_messages(call["method"]))


def _calls(request: Request, is_wanted: Callable[[dict[str, Any]], bool]) -> Response:
    bot: SimulatedBot = request.app.state.bot
    after = request.query_params.get("after", "0")
    if not after.isdecimal():
        return json_reply({"error": "after must be the number of a call"}, 400)
    newest_first = islice(reversed(bot.calls), max(0, bot.calls_received - int(after)))
    return json_reply([call for call in newest_first if is_wanted(call)][::-1])


def _reading(path: str, read: Callable[[SimulatedBot], Any]) -> Route:
    async def endpoint(request: Request) -> Response:
        return json_reply(read(request.app.state.bot))

    return Route(path, endpoint, methods=["GET"])


def _changing(path: str, change: Callable[[SimulatedBot, Any], Any]) -> Route:
    async def endpoint(request: Request) -> Response:
        body = await request.body()
        try:
            return json_reply(change(request.app.state.bot, orjson.loads(body) if body else {}))
        except orjson.JSONDecodeError as error:
            return json_reply({"error": f"the body is not JSON: {error}"}, 400)
        except (TypeError, ValueError) as error:
            return json_reply({"error": str(error)}, 400)

    return Route(path, endpoint, methods=["POST"])


ROUTES = [
    Route("/", welcome),
    Route("/control/calls", calls),
    Route("/control/messages", messages, methods=["GET"]),
    _changing("/control/messages", write),
    _changing("/control/presses", press),
    _reading("/control/drafts", lambda bot: bot.chats.drafts.shown()),
    _changing("/control/stops", stop),
    _changing("/control/examples", add_examples),
    _reading("/control/stats", lambda bot: bot.stats()),
    _reading("/control/answers", lambda bot: bot.answers.numbers()),
    _changing("/control/updates", add_updates),
    _changing("/control/faults", add_faults),
    _changing("/control/stream", set_stream),
    _changing("/control/webhook", disturb),
    _changing("/control/reset", reset),
]
