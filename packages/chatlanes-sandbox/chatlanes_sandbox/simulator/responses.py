"""Responses in Telegram's format."""

from http import HTTPStatus
from http.client import responses
from typing import Any

import orjson
from starlette.responses import Response


def result(value: Any) -> Response:
    return json_reply({"ok": True, "result": value})


def result_of_updates(bodies: list[bytes]) -> Response:
    """The same for serialised updates."""
    return Response(b'{"ok":true,"result":[' + b",".join(bodies) + b"]}", media_type="application/json")


def refusal(status: int, description: str | None = None, retry_after: int | None = None) -> Response:
    """Without a `description` it is the status in words, with the seconds to wait if there are any."""
    answer: dict[str, Any] = {
        "ok": False,
        "error_code": status,
        "description": description or responses.get(status, "Error"),
    }
    if retry_after is None:
        return json_reply(answer, status)
    answer["parameters"] = {"retry_after": retry_after}
    if description is None:
        answer["description"] += f": retry after {retry_after}"
    return json_reply(answer, status, {"Retry-After": str(retry_after)})


def json_reply(value: Any, status: int = HTTPStatus.OK, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value), status, headers, media_type="application/json")
