"""What becomes of an update whose handler failed. Pure."""

import traceback
from dataclasses import dataclass
from typing import Any

from settings import Settings

#: The longest wait between two attempts, seconds: a service that came back is noticed within a minute.
LONGEST_BACKOFF_S = 60.0
#: Characters kept of a message, and of the end of a traceback: a handler may put a whole answer into its error.
LONGEST_MESSAGE, LONGEST_TRACEBACK = 2_000, 20_000


@dataclass(frozen=True)
class RetryIn:
    """Again, in its place, after so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Bury:
    """Not again: to the dead letters."""


def decide(attempt: int, settings: Settings, *, is_final: bool = False) -> RetryIn | Bury:
    """After the `attempt`th failure (1, 2, …). `is_final`: no other attempt would mend it."""
    if is_final or attempt >= settings.max_attempts:
        return Bury()
    return RetryIn(min(settings.retry_backoff * 2 ** (attempt - 1), LONGEST_BACKOFF_S))


def problem_of(error: BaseException, attempt: int) -> dict[str, Any]:
    """What the dead letters say about a failure. Raises nothing, whatever the error does when it is asked."""
    return {
        "type": type(error).__name__,
        "message": _message_of(error)[:LONGEST_MESSAGE],
        "attempt": attempt,
        "traceback": "".join(traceback.format_exception(error))[-LONGEST_TRACEBACK:],
    }


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as trouble:
        return f"(no message: its __str__ raised {type(trouble).__name__})"
