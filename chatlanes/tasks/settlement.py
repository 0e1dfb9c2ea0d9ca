"""Decides the outcome of a run, records it in Redis, then reports it to Celery.

Redis is written first, and an update whose outcome could not be recorded runs again. Celery acknowledges a task that
raised anything but Retry, Ignore or Reject, so each function here raises one of these, or the handler's error. Raises
RedisAway when Redis does not answer; the update is then released without counting an attempt (lanes.LaneTask).
"""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from celery.exceptions import Ignore, Reject, Retry

import celery_lanes as lanes
from celery_lanes.protocol import Outcome, Write
from chatlanes import traces
from chatlanes.bot.bot import NoHandlerError
from chatlanes.logs import Secrets
from chatlanes.logs.errors import LEFT_OUT, LONGEST_MESSAGE, HandlerError, message_of, problem_of, traceback_of
from chatlanes.settings import Settings
from chatlanes.tasks.bots import ServedBot
from chatlanes.telegram.flood import FloodWait

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


def commit(delivery: lanes.Delivery, writes: Sequence[Write] = (), *, skipped: bool = False) -> None:
    """Settle the update. Raises Reject if that could not be written to Redis, and Ignore if the lease was lost."""
    try:
        outcome = delivery.commit(writes, skipped=skipped)
    except lanes.RedisAway:
        raise
    except Exception as trouble:
        # The commit may have happened: then the update is gone, and releasing it changes nothing.
        raise Reject(f"could not record in Redis that {delivery.id} is done: {trouble}", requeue=True) from trouble
    if outcome is Outcome.LOST:
        raise Ignore(f"the lease of {delivery.id} was lost before its handler ended")


def ending_of(error: BaseException) -> traces.Ending:
    """The outcome of a run, and its failure if any, as the trace records them, from the error that the task raised."""
    if isinstance(error, Retry) and isinstance(error.exc, lanes.Interrupted):
        return traces.Ending({"outcome": "interrupted"}, None)
    if isinstance(error, Retry):
        failure = None if isinstance(error.exc, FloodWait) else error.exc
        return traces.Ending({"outcome": "retried" if error.__cause__ else "parked"}, failure)
    if isinstance(error, Ignore):
        return traces.Ending({"outcome": "lost"}, error.__cause__ or error)
    if isinstance(error, Reject):
        return traces.Ending({"outcome": "given back"}, error.__cause__ or error)
    return traces.Ending({"outcome": "buried" if isinstance(error, Exception) else "interrupted"}, error)


def decision_for(served: ServedBot, delivery: lanes.Delivery, error: Exception) -> RetryIn | Bury:
    return decide(
        delivery.attempt, served.settings, is_final=isinstance(error, (*served.bot.never_retry, NoHandlerError))
    )


def fail(served: ServedBot, delivery: lanes.Delivery, error: Exception, secrets: Secrets) -> NoReturn:
    """Retry or bury the update, and report that to Celery, which reports it to Flower. Always raises."""
    decision = decision_for(served, delivery, error)
    problem, reported = problem_of(error, delivery.attempt, secrets), fit_for_celery(error, secrets)
    try:
        if isinstance(decision, Bury):
            outcome = delivery.bury(problem)
        else:
            outcome = delivery.retry(delay_s=decision.seconds, problem=problem)
    except lanes.RedisAway:
        raise
    except Exception as trouble:
        # The failure is not recorded, and Celery acknowledges a task that raised: the update would be lost. Reject
        # releases it, as if this process had died.
        raise Reject(f"could not record in Redis that {delivery.id} failed: {trouble}", requeue=True) from reported
    if outcome is Outcome.LOST:
        raise Ignore(f"the lease of {delivery.id} was lost before its handler failed") from reported
    if isinstance(decision, Bury):
        raise reported
    raise Retry(exc=reported, when=decision.seconds) from reported


def interrupted(delivery: lanes.Delivery) -> NoReturn:
    """Report to Celery that a newer update has ended the run; Redis knows it already. Flower shows a retry. Always
    raises.
    """
    raise Retry(exc=lanes.Interrupted(f"a newer update has ended this run of {delivery.id}"), when=0)


def park(delivery: lanes.Delivery, delay_s: float, why: Exception) -> NoReturn:
    """Park the update, which counts no attempt, and report the reason to Celery. Always raises."""
    try:
        outcome = delivery.park(delay_s=delay_s, kind=type(why).__name__, reason=str(why))
    except lanes.RedisAway:
        raise
    except Exception as trouble:
        raise Reject(f"could not park {delivery.id} in Redis: {trouble}", requeue=True) from why
    if outcome is Outcome.LOST:
        raise Ignore(f"the lease of {delivery.id} was lost before it was parked") from why
    raise Retry(exc=why, when=round(delay_s, 1))


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
