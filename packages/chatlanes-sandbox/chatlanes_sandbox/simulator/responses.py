"""Responses in Telegram's format."""

from http import HTTPStatus
from typing import Any

import orjson
from starlette.responses import Response

#: Telegram's names of statuses that HTTP names differently.
PHRASES = {429: "Too Many Requests"}


def result(value: Any) -> Response:
    return json_reply({"ok": True, "result": value})


def result_of_updates(bodies: list[bytes]) -> Response:
    """The same for serialised updates."""
    return Response(b'{"ok":true,"result":[' + b",".join(bodies) + b"]}", media_type="application/json")


def refusal(status: int, description: str | None = None, retry_after: int | None = None) -> Response:
    """Without a `description` it is the status in words, with the seconds to wait if there are any."""
    answer: dict[str, Any] = {"ok": False, "error_code": status, "description": description or _in_words(status)}
    if retry_after is None:
        return json_reply(answer, status)
    answer["parameters"] = {"retry_after": retry_after}
    if description is None:
        answer["description"] += f": retry after {retry_after}"
    return json_reply(answer, status, {"Retry-After": str(retry_after)})


def json_reply(value: Any, status: int = HTTPStatus.OK, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value), status, headers, media_type="application/json")


def _in_words(status: int) -> str:
    try:
        return PHRASES.get(status) or HTTPStatus(status).phrase
    except ValueError:
        return "Error"
