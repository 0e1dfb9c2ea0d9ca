"""What becomes of an update whose handler failed: retry or bury, and the error that Celery may see. Pure."""

import pickle
from dataclasses import dataclass

from chatlanes.logs import Secrets
from chatlanes.logs.errors import LEFT_OUT, LONGEST_MESSAGE, HandlerError, message_of, traceback_of
from chatlanes.settings import Settings

#: The longest wait between two attempts, seconds: a service that came back is noticed within a minute.
LONGEST_BACKOFF_S = 60.0
#: Bytes and characters of an error that Celery may pickle, send and log as it is.
LARGEST_PICKLED, LONGEST_SHOWN = 64 * 1024, 2 * LONGEST_MESSAGE


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


def fit_for_celery(error: Exception, secrets: Secrets) -> Exception:
    """The error itself, or what stands for it: Celery pickles it, logs it and sends it to Flower as it is."""
    told = traceback_of(error, secrets)
    if LEFT_OUT not in told and told == traceback_of(error, Secrets()) and _is_small(error, secrets):
        return error
    stands_for_it = HandlerError(type(error).__name__, message_of(error, secrets))
    stands_for_it.add_note(told)
    return stands_for_it


def _is_small(error: Exception, secrets: Secrets) -> bool:
    if sum(len(each) for each in error.args if isinstance(each, str | bytes)) > LARGEST_PICKLED:
        return False
    try:
        if len(pickle.dumps(error)) > LARGEST_PICKLED:
            return False
        shown = repr(error)
    except Exception:  # Celery's own business, and it copes
        return True
    return len(shown) <= LONGEST_SHOWN and secrets.cut(shown) == shown
