"""What an answer of the Bot API means to the poller, and its typed errors. Pure.

Promises that any status with any body is either a result or one of these errors, and that the text of an error is
the same each time the same thing happens, so that it can be told apart from a change.
Does not know the token; an answer that repeats it is cut out of the log by chatlanes.logs.
"""

from typing import Any

from chatlanes.logs.foreign_text import one_line
from chatlanes.telegram.responses import BotApiAnswer, parse_answer, status_line


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


def _seconds(wish: Any) -> float | None:
    """Any number: retry.py bounds it. NaN counts as none, and an int may be too large for a float."""
    return wish if type(wish) in (int, float) and wish == wish else None
