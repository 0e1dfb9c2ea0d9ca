"""Decides whether a failed update is retried or buried, and which error is passed to Celery. Pure."""

import pickle
from dataclasses import dataclass

from chatlanes.logs import Secrets
from chatlanes.logs.errors import LEFT_OUT, LONGEST_MESSAGE, HandlerError, message_of, traceback_of
from chatlanes.settings import Settings

#: The longest wait between two attempts: when a service recovers, its updates run again within a minute.
LONGEST_BACKOFF_S = 60.0
#: The largest pickle (bytes) and repr (characters) of an error that is passed to Celery unchanged.
LARGEST_PICKLED, LONGEST_SHOWN = 64 * 1024, 2 * LONGEST_MESSAGE


@dataclass(frozen=True)
class RetryIn:
    """Retry after this many seconds, still first in its lanes."""

    seconds: float


@dataclass(frozen=True)
class Bury:
    """Do not retry: move it to the dead letters."""


def decide(attempt: int, settings: Settings, *, is_final: bool = False) -> RetryIn | Bury:
    """Decide after the `attempt`th failure (1, 2, …). `is_final`: another attempt could not succeed."""
    if is_final or attempt >= settings.max_attempts:
        return Bury()
    return RetryIn(min(settings.retry_backoff * 2 ** (attempt - 1), LONGEST_BACKOFF_S))


def fit_for_celery(error: Exception, secrets: Secrets) -> Exception:
    """The error itself, or a HandlerError if it is too large or holds a secret: Celery pickles it, logs it and sends it
    to Flower unchanged.
    """
    redacted = traceback_of(error, secrets)
    if LEFT_OUT not in redacted and redacted == traceback_of(error, Secrets()) and _is_small(error, secrets):
        return error
    replacement = HandlerError(type(error).__name__, message_of(error, secrets))
    replacement.add_note(redacted)
    return replacement


def _is_small(error: Exception, secrets: Secrets) -> bool:
    if sum(len(each) for each in error.args if isinstance(each, str | bytes)) > LARGEST_PICKLED:
        return False
    try:
        if len(pickle.dumps(error)) > LARGEST_PICKLED:
            return False
        shown = repr(error)
    except Exception:  # Celery handles errors that cannot be pickled or shown
        return True
    return len(shown) <= LONGEST_SHOWN and secrets.cut(shown) == shown
