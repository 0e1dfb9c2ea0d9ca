"""Evicts an update from a handler that did not end at the hard limit.

From then on the handler's calls and writes are refused. The handler itself keeps running, because a thread cannot be
killed.
"""

from dataclasses import replace
from typing import Any

from celery import Celery
from celery.utils.log import get_task_logger

from chatlanes import lanes
from chatlanes.bot.bot import UpdateTimeoutError
from chatlanes.bot.calls.run_calls import Calls
from chatlanes.bot.context import Context
from chatlanes.logs.errors import problem_of
from chatlanes.tasks.bots import ServedBot
from chatlanes.tasks.hooks import call_hook
from chatlanes.tasks.outcome import Bury, RetryIn
from chatlanes.tasks.settings import secrets
from chatlanes.tasks.settlement import decision_for
from chatlanes.tasks.time_limits import Run

logger = get_task_logger(__name__)


def evict(
    app: Celery, run: Run, request: Any, served: ServedBot, ctx: Context, delivery: lanes.Delivery | None
) -> None:
    """Called at the hard limit of a handler that cannot be killed: retries or buries its update."""
    if delivery is None:
        return
    error = UpdateTimeoutError(
        "the handler did not end at the hard limit and cannot be killed; it keeps running, without effect"
    )
    problem = problem_of(error, delivery.attempt, secrets())
    problem["traceback"] = run.where() or problem["traceback"]
    decision = take_back(served, delivery, error, problem)
    if decision is None:
        return
    logger.warning("%s: %s. Its slot stays occupied until it ends.", delivery.id, error)
    call_hook(show_eviction, app, request, decision, problem)
    call_hook(served.bot.on_error, replace(ctx, api=Calls(served.api)), error)


def take_back(
    served: ServedBot, delivery: lanes.Delivery, error: Exception, problem: dict[str, Any]
) -> RetryIn | Bury | None:
    """Evict the update, to be retried or buried. None if the handler had ended, or if no attempt is counted."""
    if delivery.is_cut_off:  # a Redis outage used up the time; that is not a failure of the handler
        delivery.evict(delay_s=None, problem=None)
        return None
    decision = decision_for(served, delivery, error)
    delay_s = None if isinstance(decision, Bury) else decision.seconds
    return decision if delivery.evict(delay_s=delay_s, problem=problem) else None


def show_eviction(app: Celery, request: Any, decision: RetryIn | Bury, problem: dict[str, Any]) -> None:
    """Send the event to Flower: Celery sends none when the evicted handler ends."""
    kind = "task-failed" if isinstance(decision, Bury) else "task-retried"
    with app.events.default_dispatcher(hostname=request.hostname) as dispatcher:
        dispatcher.send(
            kind,
            uuid=request.id,
            exception=f"UpdateTimeoutError({problem['message']!r})",
            traceback=problem["traceback"],
        )
