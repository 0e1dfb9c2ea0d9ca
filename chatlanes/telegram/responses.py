"""Parses responses of the Bot API. Pure.

Any status and body give a `BotApiAnswer`, or None if the response is not from a Bot API. `read` returns the result or
raises a typed error; the poller has its own errors (poller/bot_api.py).
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NamedTuple

from chatlanes.logs.foreign_text import one_line
from chatlanes.telegram.errors import BotApiError, ChatId, ServerError, TooManyRequests, refusal
from chatlanes.updates.parsing import read as read_json


class BotApiAnswer(NamedTuple):
    """A parsed response. `code` is the HTTP status if the response names none of at most three digits; `description` is
    unchanged.
    """

    is_ok: bool
    result: Any
    has_result: bool
    code: int
    description: str | None
    parameters: dict[str, Any]


def parse_answer(status: int, body: bytes) -> BotApiAnswer | None:
    """None if the response is not from a Bot API, but from a proxy or because BOT_API_URL is wrong."""
    try:
        answer = read_json(body)
    except ValueError:
        return None
    if not isinstance(answer, dict) or not isinstance(answer.get("ok"), bool):
        return None
    code, parameters, description = (answer.get(name) for name in ("error_code", "parameters", "description"))
    return BotApiAnswer(
        answer["ok"],
        answer.get("result"),
        "result" in answer,
        code if type(code) is int and 0 <= code <= 999 else status,
        description if isinstance(description, str) else None,
        parameters if isinstance(parameters, dict) else {},
    )


def status_line(status: int) -> str:
    phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else "unknown status"
    return f"{status} {phrase}"


def read(method: str, chat: ChatId, status: int, body: bytes, hide: Callable[[str], str] = str) -> Any:
    """The `result` of the response. Raises the matching BotApiError; `hide` removes secrets from its description."""
    answer = parse_answer(status, body)
    if answer is None:
        raise _of_no_bot_api(method, chat, status)
    if answer.is_ok:
        return answer.result
    description = one_line(hide(answer.description if answer.description is not None else "no description"))
    raise refusal(method, chat, answer.code, description, answer.parameters)


def _of_no_bot_api(method: str, chat: ChatId, status: int) -> BotApiError:
    """The error for a response that is not from a Bot API. Of its codes only 429 has Telegram's meaning; a 403, for
    example, does not mean that a user blocked the bot.
    """
    kind = TooManyRequests if status == HTTPStatus.TOO_MANY_REQUESTS else ServerError
    return kind(method, chat, f"{status_line(status)}, not the answer of a Bot API (is BOT_API_URL right?)", status)
