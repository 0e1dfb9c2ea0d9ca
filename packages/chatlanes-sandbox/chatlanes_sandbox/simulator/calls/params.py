"""The parameters of a call, read from its request: JSON values, or their text in a form or a query.

Every reader accepts any value. Which parameters a method has is not checked here. Methods have the same name in upper
and lower case, as at Telegram.
"""

from typing import Any
from urllib.parse import parse_qsl

import orjson
from starlette.datastructures import UploadFile
from starlette.requests import Request

from chatlanes_sandbox.simulator.calls.files import FileStore

#: Numbers have 64 bits: in Telegram, in JSON as it is written here, and in SQLite.
LARGEST_NUMBER = 2**63 - 1

Params = dict[str, Any]


class RefusedError(Exception):
    """Telegram answers 400; the text is its description."""


def whole(params: dict[str, Any], name: str, default: int) -> int:
    """A number as Telegram reads it: other values, and numbers of more than 64 bits, are read as the default."""
    try:
        number = int(params.get(name, default))
    except (TypeError, ValueError, OverflowError):
        return default
    return number if abs(number) <= LARGEST_NUMBER else default


def is_true(value: Any) -> bool:
    """A boolean as Telegram reads it."""
    return str(value).lower() in ("true", "1")


def listed(params: Params, name: str) -> list[Any]:
    """A parameter that is a list, given as such or as its JSON; empty for other values."""
    value = parsed(params.get(name))
    return value if isinstance(value, list) else []


def decoded(value: Any) -> dict[str, Any]:
    """A parameter that is an object, given as such or as its JSON; empty for other values."""
    value = parsed(value)
    return value if isinstance(value, dict) else {}


def parsed(value: Any) -> Any:
    """A parameter, given as such or as its JSON. None: unreadable."""
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return None


# ── methods ──

#: Sends that do not answer with the message they sent.
_NO_MESSAGE = frozenset(
    {"sendChatAction", "sendMessageDraft", "sendRichMessageDraft", "sendChatJoinRequestWebApp", "sendGift"}
    | {"sendMediaGroup"}
)


def gives_message(method: str) -> bool:
    """True if the method puts one message into a chat and answers with it."""
    return method == "forwardMessage" or (method.startswith("send") and method not in _NO_MESSAGE)


def edits_message(method: str) -> bool:
    return method.startswith(("editMessage", "stopMessage"))


def sends_messages(method: str) -> bool:
    """True if the method puts messages into a chat."""
    return gives_message(method) or method in _SENDS_OTHERWISE


_SENDS_OTHERWISE = frozenset({"sendMediaGroup", "copyMessage", "copyMessages", "forwardMessages"})


async def parameters_of(request: Request, files: FileStore) -> Params:
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
