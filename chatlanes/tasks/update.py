"""The task of every update: runs the bot on one update, or a group of collected ones, then settles it.

If the handler returns, the update is settled; if it raises, the update is retried, still first in its lanes, and
finally buried. If the outcome could not be recorded in Redis, the update runs again. A run is a chain of steps (STEPS);
each may be deleted without the others. Their order matters, because a process may die between any two of them.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import Any

from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded
from celery.utils.log import get_task_logger

import celery_lanes as lanes
from celery_lanes.protocol import Write
from celery_lanes.runtime.threads import run_blocking
from celery_lanes.worker import check_is_exception
from celery_lanes.worker.delivery import delivery_of
from chatlanes import traces
from chatlanes.bot import schedules
from chatlanes.bot.bot import BotStartError, UpdateTimeoutError
from chatlanes.bot.broadcasting import start_broadcast
from chatlanes.bot.calls.run_calls import Calls, LaneCalls
from chatlanes.bot.context import Context
from chatlanes.bot.event_loop import EventLoop, event_loop
from chatlanes.bot.interrupts import Interrupts
from chatlanes.bot.stored import Stored
from chatlanes.bot.timers import due_of, is_timer, set_again
from chatlanes.logs import Ids, about
from chatlanes.logs.errors import problem_of, traceback_of
from chatlanes.outbox import KIND as OUTBOX
from chatlanes.tasks import broadcasts, lateness, questions
from chatlanes.tasks.app import app
from chatlanes.tasks.bots import ServedBot, bots, call_hook
from chatlanes.tasks.broadcasts import Recipient, Sending
from chatlanes.tasks.limits import Limits, SlowRuns, evict, take_back
from chatlanes.tasks.settings import secrets
from chatlanes.tasks.settlement import commit, end_unserved, ending_of, fail, fit_for_celery, interrupted, park
from chatlanes.tasks.typing_action import TypingAction, action_of
from chatlanes.telegram.flood import FloodWait, Parking, ParkUpdate, RunGate
from chatlanes.updates.parsing import QUESTION_DATA, read
from chatlanes.updates.words import WORDS

logger = get_task_logger(__name__)

TASK = WORDS.task

slow_runs = SlowRuns()

#: The delay before an update is tried again, in any process, after the bot could not start in this one.
START_AGAIN_AFTER_S = 3.0

NO_LIMITS = nullcontext()

#: How the ids of messages continue after the bot's id if their runs are not coroutines, whatever the bot is.
IN_PLACE = (f"{broadcasts.KIND}:", f"{OUTBOX}:")


class UpdateTask(lanes.LaneTask):
    """The hard limit counts as a failed attempt. A bot of coroutines runs on the event loop, without threads."""

    abstract = True

    def loop_of(self, message_id: str) -> EventLoop | None:
        served = bots().of(message_id)
        if served is None or not served.is_fully_async or message_id.partition(":")[2].startswith(IN_PLACE):
            return None
        return event_loop()

    def on_stopped(self, delivery: lanes.Delivery) -> None:
        """A newer update has stopped this one (CONTROL): the run only marks its streams, and settles it."""
        self.run(*self.request.args)

    def on_failure(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        """Flower and the events show this traceback: it begins with the bot's own code."""
        einfo.traceback = traceback_of(exc, secrets())

    def on_retry(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        einfo.traceback = traceback_of(exc, secrets())

    def on_hard_limit(self, delivery: lanes.Delivery) -> None:
        served = bots().of(delivery.id)
        error = UpdateTimeoutError("the handler did not end at the hard limit; its process was killed")
        if served and take_back(served, delivery, error, problem_of(error, delivery.attempt, secrets())):
            with about(lambda: Ids(delivery.id, attempt=delivery.attempt + delivery.died)):
                logger.warning("%s: %s", delivery.id, error)


@app.task(name=TASK, bind=True, base=UpdateTask, max_retries=None)
def update(self: lanes.LaneTask, content: dict[str, Any]) -> None:
    """Run the bot on one update, as Telegram sent it. Raises LookupError for one that did not come through a lane."""
    request = self.request
    delivery = delivery_of(request, app.lanes)
    if delivery is None:
        raise LookupError(
            "an update runs in its lane: let the poller or the webhook receiver append it; in a test, call the handler "
            "with Context(update, api)"
        )
    served = bots().of(request.id)
    if served is None:
        end_unserved(request.id, delivery)
        return
    try:
        run_in_lane(request, served, content, delivery)
    except SoftTimeLimitExceeded as late:
        if delivery.is_cut_off:
            raise lanes.RedisAway("Redis was away until UPDATE_TIMEOUT") from late
        # The soft limit interrupted this module, not the handler. Celery acknowledges a task that raised, unless it
        # raised Reject.
        raise Reject("interrupted while its outcome was being recorded", requeue=True) from late


@dataclass(slots=True, eq=False)
class Run:
    """One run of a bot, which the steps pass on. `handler`: the function to call instead of the bot. `started_s`: by
    `time.monotonic()`. `writes` are stored with those of the context when the update is settled.
    """

    request: Any
    served: ServedBot
    ctx: Context
    delivery: lanes.Delivery
    parking: Parking
    handler: Callable[[Context], object] | None = None
    limits: Limits | None = None
    error: Exception | None = None
    started_s: float = field(default_factory=monotonic)
    writes: list[Write] = field(default_factory=list)


def run_in_lane(request: Any, served: ServedBot, content: dict[str, Any], delivery: lanes.Delivery) -> None:
    """Take the steps, until one has settled the update or raises: Celery reads the exception (settlement.py). Raises
    Ignore if a step finds that the lease was lost: another worker runs the update.
    """
    parking = Parking()
    attempt = delivery.attempt + delivery.died
    ctx = context_of(content, served, delivery, parking, attempt)
    run = Run(request, served, ctx, delivery, parking)
    with (
        about(lambda: Ids(delivery.id, ctx.chat_id, attempt)),
        traces.here().running(request, ctx, delivery, ending_of) as span,
    ):
        try:
            for step in STEPS:
                if outcome := step(run):
                    span.set(outcome=outcome)
                    return
        except lanes.LeaseLost as lost:
            if lost is run.error:  # the handler's own error, with which the update was buried
                raise
            raise Ignore(f"the lease of {delivery.id} was lost outside of its handler") from lost


def context_of(
    content: dict[str, Any], served: ServedBot, delivery: lanes.Delivery, parking: Parking, attempt: int
) -> Context:
    """The context of this run. `content` is the first update; the delivery has those that were collected with it."""
    settings, deadline_s = served.settings, deadline_of(served)
    updates = (content, *(read(body.encode())[0][0] for body in delivery.bodies))
    stored = Stored(delivery, parking)
    plan = served.plan
    if (due := due_of(delivery.id) or schedules.due_of(content)) is not None:
        plan = replace(plan, late_s=max(delivery.time_ms() / 1000 - due.timestamp(), 0.0))
    return Context(
        updates[-1],
        LaneCalls(
            served.api,
            delivery,
            "skip" if broadcasts.KIND in content else settings.uncertain_call,
            lambda: RunGate(served.gate, delivery, parking, deadline_s),
        ),
        attempt=attempt,
        deadline_s=deadline_s,
        appended_s=monotonic() - delivery.age_s,
        stored=stored,
        fence=int(delivery.fence),
        updates=updates,
        broadcasting=partial(start_broadcast, settings, stored),
        plan=plan,
        interrupts=Interrupts(delivery) if delivery.listens or delivery.is_stopped else None,
        default_mode=served.default_mode,
        is_late=settings.max_age is not None and lateness.is_late_run(served, delivery, updates),
    )


def deadline_of(served: ServedBot) -> float | None:
    limit_s = served.settings.update_timeout
    return None if limit_s is None else monotonic() + limit_s


# -- the steps of a run, in their order. One that returns an outcome has settled the update.


def skip(run: Run) -> str | None:
    """The settings say not to run this update. Raises the same as `commit`."""
    reason = reason_to_skip(run.served, run.ctx, run.delivery)
    if reason is None or run.delivery.is_stopped:
        return None
    commit(run.delivery, skipped=True)
    logger.info("%s: not run: %s", run.delivery.id, reason)
    return "skipped"


def collect_late(run: Run) -> None:
    """Late messages of the same sender that follow become part of this run (MAX_AGE_ACTION=collect)."""
    if not run.ctx.is_late or run.served.settings.max_age_action != "collect":
        return
    if lateness.collect(run.served, run.ctx, run.delivery):
        run.ctx = context_of(run.ctx.updates[0], run.served, run.delivery, run.parking, run.ctx.attempt)


def note_late(run: Run) -> None:
    """A run after a crash has the same `ctx.is_late`, so its handler makes the same calls."""
    if run.ctx.is_late:
        lateness.note(run.delivery)


def move(run: Run) -> str | None:
    """A timer of a group that has become a supergroup is settled, and set again for the new chat. Raises LeaseLost, and
    the same as `commit`.
    """
    delivery = run.delivery
    write = set_again(run.ctx.update, delivery, run.ctx.plan)
    if write is None:
        return None
    commit(delivery, [write])
    logger.info("%s: not run here: its group has become a supergroup, and it runs in the new chat", delivery.id)
    return "moved"


def find_recipient(run: Run) -> None:
    """A recipient of a broadcast gets the broadcast's call, and a call of the outbox is made."""
    if run.ctx.kind == broadcasts.KIND:
        run.handler = Recipient(run.served, run.ctx.update, run.delivery, run.writes)
    elif run.ctx.kind == OUTBOX:
        run.handler = Sending(run.served, run.ctx.update, run.delivery, run.writes)


def take_answer(run: Run) -> None:
    """An answer to the open question of its lane continues the handler that has asked; an update of CONTROL closes the
    question.
    """
    if run.handler is not None or run.delivery.is_marked:  # a recipient, whatever CONTROL returns for it, or limited
        return
    if run.delivery.note or run.ctx.kind == "question_timeout" or run.ctx.data.startswith(QUESTION_DATA):
        questions.take(run)


def stop(run: Run) -> None:
    """A stopped update: in place of the bot, nothing is called. What its run had streamed is marked before."""
    if run.delivery.is_stopped and run.handler is None:
        run.handler = lambda _: None


def answer_limited(run: Run) -> None:
    """The first update over USER_RATE (USER_RATE_OVER=answer): `on_limited` is called in place of the bot."""
    if run.delivery.is_marked and run.handler is None:
        run.handler = run.served.limited


def limit(run: Run) -> None:
    """UPDATE_TIMEOUT, enforced as far as this pool allows. A process of a pool that forks is ended by Celery."""
    limit_s = run.served.settings.update_timeout
    if limit_s is None or app.lanes.in_flight.forks:
        return

    def report() -> None:
        if not run.ctx.interrupted:
            call_hook(run.served.bot.on_timeout, hook_context(run, "timeout"))

    limits = Limits(limit_s, report, lambda: evict(app, limits, run.request, run.served, run.ctx, run.delivery))
    run.limits = limits


def call_handler(run: Run) -> None:
    """Run the bot once, and keep its error."""
    try:
        with run.limits.limited() if run.limits else NO_LIMITS, typing_of(run):
            run_bot(run.handler or run.served.bot_for(run.ctx), run.ctx)
    except ParkUpdate:
        pass  # `parking` remembers it, because a bot may swallow the exception
    except Exception as raised:
        run.error = raised


def typing_of(run: Run) -> AbstractContextManager[None]:
    """Shows that the bot is typing, with TYPING=on. Recipients of broadcasts and calls do not wait for an answer."""
    is_recipient = run.ctx.kind in (broadcasts.KIND, OUTBOX)
    if run.served.settings.typing == "off" or is_recipient or not isinstance(run.ctx.api, Calls):
        return NO_LIMITS
    action = action_of(run.ctx.update)
    return TypingAction(run.ctx.api, action).shown() if action else NO_LIMITS


def check_lease(run: Run) -> None:
    """Raises Retry if a newer update has interrupted the run, and Ignore if its lease was lost."""
    delivery = run.delivery
    if delivery.is_interrupted:
        interrupted(delivery)
    if (run.limits and run.limits.is_evicted) or delivery.is_lost():
        raise Ignore(f"the lease of {delivery.id} was lost before its handler ended") from (
            run.error and fit_for_celery(run.error, secrets())
        )


def wait_for_start(run: Run) -> None:
    """The bot could not start in this process: the update is parked."""
    if isinstance(run.error, BotStartError):
        park(run.delivery, START_AGAIN_AFTER_S, fit_for_celery(run.error, secrets()))


def wait_for_redis(run: Run) -> None:
    """Raises RedisAway if a Redis outage ended the run, even if the bot swallowed or replaced it.

    Only our own clients raise RedisAway. An error from the bot's own Redis client is an ordinary failure.
    """
    if isinstance(run.error, lanes.RedisAway):
        raise run.error
    if isinstance(run.error, UpdateTimeoutError) and run.delivery.is_cut_off:
        raise lanes.RedisAway("Redis was away until UPDATE_TIMEOUT")
    if run.parking.outage:
        raise run.parking.outage


def wait_for_answer(run: Run) -> str | None:
    """The handler has asked a question."""
    if "new_question" not in run.ctx.__dict__:
        return None
    commit(run.delivery, questions.opened(run))
    return "asked"


def report_timeout(run: Run) -> None:
    is_reported = run.limits is not None and run.limits.is_reported
    if not is_reported and (run.ctx.timed_out or isinstance(run.error, UpdateTimeoutError)):
        call_hook(run.served.bot.on_timeout, hook_context(run, "timeout"))


def wait_for_flood(run: Run) -> None:
    """Flood control has parked the update."""
    if run.parking.is_wanted:
        park(run.delivery, run.parking.delay_s(), FloodWait(run.parking.reason))


def report_error(run: Run) -> None:
    if run.error is not None:
        call_hook(run.served.bot.on_error, hook_context(run, "error"), run.error)


def end_recipient(run: Run) -> None:
    """A recipient of a broadcast is not buried."""
    if run.error is not None and isinstance(run.handler, Recipient):
        run.handler.end_after(run.error)


def retry_or_bury(run: Run) -> None:
    """Raises the same as `fail`."""
    if run.error is not None:
        fail(run.served, run.delivery, run.error, secrets())


def settle(run: Run) -> str | None:
    """Write the handler's stored data, and settle its update, in one step. Without such writes, Celery's
    acknowledgement settles the update.
    """
    writes = [*(run.ctx.stored.writes if run.ctx.stored else ()), *run.writes]
    if writes or run.delivery.is_stopped:
        commit(run.delivery, writes)
    if not run.delivery.is_stopped:
        return None
    logger.info("%s: stopped by a newer update", run.delivery.id)
    return "stopped"


STEPS: tuple[Callable[[Run], str | None], ...] = (
    skip,
    collect_late,
    note_late,
    move,
    find_recipient,
    take_answer,
    stop,
    answer_limited,
    limit,
    call_handler,
    check_lease,
    wait_for_start,
    wait_for_redis,
    report_timeout,
    wait_for_flood,
    wait_for_answer,
    report_error,
    end_recipient,
    retry_or_bury,
    settle,
)


def hook_context(run: Run, hook: str) -> Context:
    """The context for a hook of this attempt. A hook runs again if its process dies, so its calls are journaled in a
    series of their own.
    """
    ctx = run.ctx
    if not isinstance(ctx.api, Calls):
        return ctx
    return replace(ctx, api=ctx.api.in_series(f"{hook}{run.delivery.attempt}/"))


def run_bot(bot: Callable[[Context], object], ctx: Context) -> None:
    """Run the handler and stage its session. Raises the handler's error as an Exception, SessionError if the session
    cannot be stored, and ParkUpdate.
    """
    try:
        finish_interrupted_streams(ctx)
        with slow_runs.watched(ctx):
            bot(ctx)
        ctx.stage()
    except BaseException as error:
        check_is_exception(error, but=ParkUpdate)  # parking is not a failure
        if isinstance(error, SoftTimeLimitExceeded):
            raise UpdateTimeoutError("the handler took longer than UPDATE_TIMEOUT and was interrupted") from error
        raise


def finish_interrupted_streams(ctx: Context) -> None:
    """Keep, delete or mark what interrupted runs had streamed, and mark what a stopped run had. Raises what a call
    raises.
    """
    interrupts, calls = ctx.interrupts, ctx.api
    if interrupts is None or not isinstance(calls, Calls):
        return
    if any(":stream-" in call.what for call in interrupts.recorded):
        from chatlanes.bot.stream import finish_interrupted  # a bot without streams does not import them

        run_blocking(lambda: finish_interrupted(calls, interrupts))


def reason_to_skip(served: ServedBot, ctx: Context, delivery: lanes.Delivery) -> str | None:
    """Why the settings say not to run this update; None if it runs. A failed or replayed timer is not too late."""
    settings = served.settings
    if delivery.is_marked and served.bot.on_limited is None:
        return "it is over USER_RATE, and the bot has no on_limited"
    if settings.stale == "skip" and ctx.is_stale and not ctx.data.startswith(QUESTION_DATA):
        return f"its {ctx.kind} is {ctx.age_s:.0f} s old, and Telegram no longer accepts an answer to it (STALE=skip)"
    if ctx.is_late and settings.max_age_action == "skip" and lateness.is_waiting(ctx, delivery):
        return f"its {ctx.kind} is {ctx.age_s:.0f} s old (MAX_AGE)"
    if settings.timer_late == "skip" and is_timer(ctx.update) and ctx.attempt == 1 and not delivery.is_replayed:
        late_s = ctx.timer.late_s
        if late_s > settings.timer_late_after:
            return f"its timer is {late_s:.0f} s late (TIMER_LATE=skip)"
    return None
