"""What an answer of the Bot API means. Pure.

Promises that any status with any body is either a result or a typed error.
"""

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import orjson

from chatlanes.logs.foreign_text import one_line
from chatlanes.telegram.errors import BotApiError, ChatId, ServerError, TooManyRequests, refusal


def read(method: str, chat: ChatId, status: int, body: bytes, hide: Callable[[str], str] = str) -> Any:
    """The `result` of the answer. Raises the BotApiError that it means; `hide` takes secrets out of its description."""
    answer = _decoded(body)
    if not isinstance(answer, dict) or not isinstance(answer.get("ok"), bool):
        raise _of_no_bot_api(method, chat, status)
    if answer["ok"]:
        return answer.get("result")
    code, parameters, description = (answer.get(name) for name in ("error_code", "parameters", "description"))
    raise refusal(
        method,
        chat,
        code if type(code) is int else status,
        one_line(hide(description if isinstance(description, str) else "no description")),
        parameters if isinstance(parameters, dict) else {},
    )


def _of_no_bot_api(method: str, chat: ChatId, status: int) -> BotApiError:
    """A proxy, a wrong BOT_API_URL: only its 429 means what Telegram means by it; its 403 is nobody's block."""
    kind = TooManyRequests if status == HTTPStatus.TOO_MANY_REQUESTS else ServerError
    phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else "unknown status"
    return kind(method, chat, f"{status} {phrase}, not the answer of a Bot API (is BOT_API_URL right?)", status)


def _decoded(body: bytes) -> Any:
    """None for what is no JSON."""
    try:
        return orjson.loads(body)
    except ValueError:
        pass  # it refuses the half emoji that users can send
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
