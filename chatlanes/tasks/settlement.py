"""Decides the outcome of a run, records it in Redis, then reports it to Celery.

Redis is written first, and an update whose outcome could not be recorded runs again. Celery acknowledges a task that
raised anything but Retry, Ignore or Reject, so each function here raises one of these, or the handler's error. Raises
RedisAway when Redis does not answer; the update is then released without counting an attempt (lanes.LaneTask).
"""

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from celery.exceptions import Ignore, Reject, Retry
from celery.utils.log import get_task_logger

import celery_lanes as lanes
from celery_lanes.protocol import Outcome, Write
from chatlanes import traces
from chatlanes.bot.bot import NoHandlerError
from chatlanes.logs import Secrets
from chatlanes.logs.errors import LEFT_OUT, LONGEST_MESSAGE, HandlerError, message_of, problem_of, traceback_of
from chatlanes.settings import Settings
from chatlanes.tasks.bots import ServedBot, bots
from chatlanes.telegram.flood import FloodWait

logger = get_task_logger(__name__)

#: The longest wait between two attempts: when a service recovers, its updates run again within a minute.
LONGEST_BACKOFF_S = 60.0
#: The largest pickle (bytes) and repr (characters) of an error that is passed to Celery unchanged.
LARGEST_PICKLED, LONGEST_SHOWN = 64 * 1024, 2 * LONGEST_MESSAGE


#: The delay before an update of an unknown bot is tried again. Short, because a wrong configuration is soon fixed.
UNKNOWN_BOT_AGAIN_AFTER_S = 60.0


class UnknownBotError(Exception):
    """The update belongs to a bot that this worker does not serve."""


def decide(attempt: int, settings: Settings, *, is_final: bool = False) -> float | None:
    """The delay in seconds after which an update is retried, still first in its lanes; None: it is buried.

    `attempt` is the number of the failure (1, 2, …). `is_final`: another attempt could not succeed.
    """
    if is_final or attempt >= settings.max_attempts:
        return None
    return min(settings.retry_backoff * 2 ** (attempt - 1), LONGEST_BACKOFF_S)


def _record(delivery: lanes.Delivery, write: Callable[[], Outcome], what: str, end: str, cause: Any = None) -> None:
    """Write the outcome. Raises Reject if that could not be written to Redis, and Ignore if the lease was lost.

    Celery acknowledges a task that raised any other error: an update whose failure is not recorded would be lost.
    Reject releases it, as if this process had died. If the write has happened, the update is gone, and releasing it
    changes nothing.
    """
    try:
        outcome = write()
    except lanes.RedisAway:
        raise
    except Exception as trouble:
        raise Reject(f"could not {what}: {trouble}", requeue=True) from cause or trouble
    if outcome is Outcome.LOST:
        raise Ignore(f"the lease of {delivery.id} was lost before {end}") from cause


def commit(delivery: lanes.Delivery, writes: Sequence[Write] = (), *, skipped: bool = False) -> None:
    """Settle the update. Raises Reject if that could not be written to Redis, and Ignore if the lease was lost."""
    write = partial(delivery.commit, writes, skipped=skipped)
    _record(delivery, write, f"record in Redis that {delivery.id} is done", "its handler ended")


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


def decision_for(served: ServedBot, delivery: lanes.Delivery, error: Exception) -> float | None:
    return decide(
        delivery.attempt, served.settings, is_final=isinstance(error, (*served.bot.never_retry, NoHandlerError))
    )


def fail(served: ServedBot, delivery: lanes.Delivery, error: Exception, secrets: Secrets) -> NoReturn:
    """Retry or bury the update, and report that to Celery, which reports it to Flower. Always raises."""
    delay_s = decision_for(served, delivery, error)
    problem, reported = problem_of(error, delivery.attempt, secrets), fit_for_celery(error, secrets)
    if delay_s is None:
        write = partial(delivery.bury, problem)
    else:
        write = partial(delivery.retry, delay_s=delay_s, problem=problem)
    _record(delivery, write, f"record in Redis that {delivery.id} failed", "its handler failed", reported)
    if delay_s is None:
        raise reported
    raise Retry(exc=reported, when=delay_s) from reported


def interrupted(delivery: lanes.Delivery) -> NoReturn:
    """Report to Celery that a newer update has ended the run; Redis knows it already. Flower shows a retry. Always
    raises.
    """
    raise Retry(exc=lanes.Interrupted(f"a newer update has ended this run of {delivery.id}"), when=0)


def park(delivery: lanes.Delivery, delay_s: float, why: Exception) -> NoReturn:
    """Park the update, which counts no attempt, and report the reason to Celery. Always raises."""
    write = partial(delivery.park, delay_s=delay_s, kind=type(why).__name__, reason=str(why))
    _record(delivery, write, f"park {delivery.id} in Redis", "it was parked", why)
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


def end_unserved(message_id: str, delivery: lanes.Delivery) -> None:
    """Park an update of a bot whose token this worker does not have: no other bot may run it, and it must not be lost.

    It stays first in its lanes until a worker that serves its bot fetches it. Only if the bot was removed with its
    waiting updates (`lanes bots remove --drop`), the update is settled unrun.
    """
    why, is_removed = bots().unserved(message_id)
    if is_removed:
        commit(delivery, skipped=True)
        logger.info("%s: not run: its bot was removed, with its waiting updates", message_id)
        return
    if why:
        error = UnknownBotError(f"{message_id} waits for its bot: {why}")
    else:
        error = UnknownBotError(
            f"{message_id} belongs to a bot whose token this worker does not have; it waits for a worker that has it"
        )
    logger.error("%s", error)
    park(delivery, UNKNOWN_BOT_AGAIN_AFTER_S, error)
