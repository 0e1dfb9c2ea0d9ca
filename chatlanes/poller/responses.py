"""Turns answers of the Bot API into results or typed errors of the poller. Pure.

Guarantees that any status with any body is a result or one of these errors, and that the same problem has the same
error text each time, so that a change can be recognized. Does not know the token: chatlanes.logs removes it from the
log.
"""

from typing import Any

from chatlanes.logs.foreign_text import one_line
from chatlanes.telegram.responses import BotApiAnswer, parse_answer, status_line


class TokenRefusedError(Exception):
    """Telegram does not know this bot. Not retried: only another BOT_TOKEN helps."""


class TelegramTroubleError(Exception):
    """No usable answer: network error, 5xx, malformed response. Retried."""

    retry_after_s: float | None = None


class PollConflictError(TelegramTroubleError):
    """409: another poller or a webhook gets this bot's updates."""


class FloodedError(TelegramTroubleError):
    """429: too many requests, or a server that restarts. `retry_after_s` as the server asks; None if it does not."""

    def __init__(self, text: str, retry_after_s: float | None) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


def result_of(method: str, status: int, body: bytes) -> Any:
    """The `result` of an answer to this method. Raises TokenRefusedError, TelegramTroubleError and its subclasses.

    TokenRefusedError and PollConflictError need an answer of a Bot API: the 404 of a proxy is retried.
    """
    answer = parse_answer(status, body)
    if answer is None:
        problem = f"{status_line(status)}, not an answer of a Bot API to {method} (is BOT_API_URL right?)"
        raise TelegramTroubleError(problem)
    if answer.is_ok and answer.has_result:
        return answer.result
    raise _refusal(answer)


def _refusal(answer: BotApiAnswer) -> Exception:
    code = answer.code
    description = "without a description" if answer.description is None else one_line(answer.description)
    match code:
        case 401 | 404:
            return TokenRefusedError(
                f"Telegram refused BOT_TOKEN ({code} {description}): set the one @BotFather gave you"
            )
        case 409:
            return PollConflictError(f"409 {description}")
        case 429:
            return FloodedError("429, too many requests", _seconds(answer.parameters.get("retry_after")))
        case _:
            return TelegramTroubleError(f"{code} {description}")


def _seconds(requested: Any) -> float | None:
    """Any number, because retry.py limits it; None for NaN. An int may be too large for a float."""
    return requested if type(requested) in (int, float) and requested == requested else None
