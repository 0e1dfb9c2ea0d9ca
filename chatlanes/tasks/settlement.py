"""Settles an update that has ended: done, failed, parked.

Guarantees that Redis is told first, and that an update whose outcome could not be told runs again. To Celery a task
that raised is done, unless it raised Retry, Ignore or Reject: so each of these functions ends with one of them, or
with the error. Raises RedisAway when Redis does not answer: the update goes back uncounted (lanes.LaneTask).
"""

from collections.abc import Sequence
from typing import NoReturn

from celery.exceptions import Ignore, Reject, Retry

from chatlanes import lanes, traces
from chatlanes.lanes.protocol.commands import Write
from chatlanes.lanes.protocol.replies import Outcome
from chatlanes.logs import Secrets
from chatlanes.logs.errors import problem_of
from chatlanes.tasks.bots import ServedBot
from chatlanes.tasks.outcome import Bury, RetryIn, decide, fit_for_celery
from chatlanes.telegram.flood import FloodWait


def commit(delivery: lanes.Delivery, writes: Sequence[Write] = (), *, skipped: bool = False) -> None:
    """Raises Reject when Redis cannot be told, and Ignore when somebody else has it by now."""
    try:
        outcome = delivery.commit(writes, skipped=skipped)
    except lanes.RedisAway:
        raise
    except Exception as trouble:
        # It may have happened: then the update is gone, and giving it back changes nothing.
        raise Reject(f"could not tell Redis that {delivery.id} is done: {trouble}", requeue=True) from trouble
    if outcome is Outcome.LOST:
        raise Ignore(f"the lease of {delivery.id} was over when it ended")


def ending_of(error: BaseException) -> traces.Ending:
    """What the trace of a run records of the error that its task raised: the outcome, and the failure if any."""
    if isinstance(error, Retry):
        failure = None if isinstance(error.exc, FloodWait) else error.exc
        return traces.Ending({"outcome": "retried" if error.__cause__ else "parked"}, failure)
    if isinstance(error, Ignore):
        return traces.Ending({"outcome": "lost"}, error.__cause__ or error)
    if isinstance(error, Reject):
        return traces.Ending({"outcome": "given back"}, error.__cause__ or error)
    return traces.Ending({"outcome": "buried" if isinstance(error, Exception) else "interrupted"}, error)


def verdict(served: ServedBot, delivery: lanes.Delivery, error: Exception) -> RetryIn | Bury:
    return decide(delivery.attempt, served.settings, is_final=isinstance(error, served.bot.never_retry))


def fail(served: ServedBot, delivery: lanes.Delivery, error: Exception, secrets: Secrets) -> NoReturn:
    """Retry or bury, and tell Celery, which tells Flower. Raises in any case."""
    decision = verdict(served, delivery, error)
    problem, told = problem_of(error, delivery.attempt, secrets), fit_for_celery(error, secrets)
    try:
        if isinstance(decision, Bury):
            outcome = delivery.bury(problem)
        else:
            outcome = delivery.retry(delay_s=decision.seconds, problem=problem)
    except lanes.RedisAway:
        raise
    except Exception as trouble:
        # Nobody knows of the failure, and to Celery an update that raised is done: it would be lost, whatever this
        # trouble is. It is given back as if this process had died.
        raise Reject(f"could not tell Redis that {delivery.id} failed: {trouble}", requeue=True) from told
    if outcome is Outcome.LOST:
        raise Ignore(f"the lease of {delivery.id} was over when it failed") from told
    if isinstance(decision, Bury):
        raise told
    raise Retry(exc=told, when=decision.seconds) from told


def park(delivery: lanes.Delivery, delay_s: float, why: Exception) -> NoReturn:
    """Park it, which counts no attempt, and tell Celery why. Raises in any case."""
    try:
        outcome = delivery.park(delay_s=delay_s, kind=type(why).__name__, reason=str(why))
    except lanes.RedisAway:
        raise
    except Exception as trouble:
        raise Reject(f"could not tell Redis that {delivery.id} waits: {trouble}", requeue=True) from why
    if outcome is Outcome.LOST:
        raise Ignore(f"the lease of {delivery.id} was over when it was to wait") from why
    raise Retry(exc=why, when=round(delay_s, 1))
