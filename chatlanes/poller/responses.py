"""What an answer of the Bot API means, and the typed errors. Pure.

Promises that any status with any body is either a result or one of these errors, and that the text of an error is
the same each time the same thing happens, so that it can be told apart from a change.
Does not know the token; an answer that repeats it is cut out of the log by chatlanes.logs.
"""

from http import HTTPStatus
from typing import Any

from chatlanes.logs.foreign_text import one_line
from chatlanes.updates.decoding import read


class TokenRefusedError(Exception):
    """Telegram does not know this bot. Final: only another BOT_TOKEN helps."""


class TelegramTroubleError(Exception):
    """No usable answer: network, 5xx, garbage. Worth another try."""

    retry_after_s: float | None = None


class PollConflictError(TelegramTroubleError):
    """409: another poller or a webhook gets this bot's updates."""


class FloodedError(TelegramTroubleError):
    """429: too many requests, or a server that restarts. `retry_after_s` as the server wishes, None without a wish."""

    def __init__(self, text: str, retry_after_s: float | None) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


def result_of(method: str, status: int, body: bytes) -> Any:
    """The `result` of an answer to this method. Raises TokenRefusedError, TelegramTroubleError and its kinds.

    What is final or a conflict has to come from a Bot API: the 404 of a proxy is trouble that may pass.
    """
    answer = _decoded(body)
    if not isinstance(answer, dict) or not isinstance(answer.get("ok"), bool):
        problem = f"{_named(status)}, not an answer of a Bot API to {method} (is BOT_API_URL right?)"
        raise TelegramTroubleError(problem)
    if answer["ok"] and "result" in answer:
        return answer["result"]
    raise _refusal(answer, status)


def _refusal(answer: dict[str, Any], status: int) -> Exception:
    code, said = answer.get("error_code"), answer.get("description")
    code = code if type(code) is int else status
    said = one_line(said) if type(said) is str else "without a description"
    match code:
        case 401 | 404:
            return TokenRefusedError(f"Telegram refused BOT_TOKEN ({code} {said}): set the one @BotFather gave you")
        case 409:
            return PollConflictError(f"409 {said}")
        case 429:
            return FloodedError("429, too many requests", _seconds(answer.get("parameters")))
        case _:
            return TelegramTroubleError(f"{code} {said}")


def _seconds(parameters: Any) -> float | None:
    """Any number: retry.py bounds it. NaN counts as none, and an int may be too large for a float."""
    wish = parameters.get("retry_after") if isinstance(parameters, dict) else None
    return wish if type(wish) in (int, float) and wish == wish else None


def _decoded(body: bytes) -> Any:
    """None for what is not JSON. An update that cannot be read whole is read in part: it must not hold up its batch."""
    try:
        return read(body)
    except ValueError:
        return None


def _named(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
