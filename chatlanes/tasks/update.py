"""The task of every update: runs the bot on one update, or a group of collected ones, then settles it.

If the handler returns, the update is settled; if it raises, the update is retried, still first in its lanes, and
finally buried. If the outcome could not be recorded in Redis, the update runs again. The order of the steps matters,
because a process may die between any two of them.
"""

from dataclasses import replace
from time import monotonic
from typing import Any, NoReturn

from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded
from celery.utils.log import get_task_logger

from chatlanes import lanes, traces
from chatlanes.bot import occurrences
from chatlanes.bot.bot import Bot, BotStartError, UpdateTimeoutError
from chatlanes.bot.broadcasting import Broadcasting
from chatlanes.bot.calls.run_calls import Calls, calls_of
from chatlanes.bot.context import Context
from chatlanes.bot.event_loop import EventLoop, event_loop
from chatlanes.bot.interrupts import Interrupts
from chatlanes.bot.migrated_timers import set_again
from chatlanes.bot.session.stored import Stored
from chatlanes.bot.timers import due_of, is_timer
from chatlanes.lanes.runtime.blocking import run_blocking
from chatlanes.lanes.worker.delivery import delivery_of
from chatlanes.lanes.worker.exits import check_is_exception
from chatlanes.logs import Ids, about
from chatlanes.logs.errors import problem_of, traceback_of
from chatlanes.tasks import broadcasts
from chatlanes.tasks.app import app
from chatlanes.tasks.bots import ServedBot, bots
from chatlanes.tasks.broadcasts import Recipient
from chatlanes.tasks.eviction import evict, take_back
from chatlanes.tasks.hooks import call_hook, hook_context
from chatlanes.tasks.outcome import fit_for_celery
from chatlanes.tasks.settings import secrets
from chatlanes.tasks.settlement import commit, ending_of, fail, interrupted, park
from chatlanes.tasks.slow_runs import SlowRuns
from chatlanes.tasks.time_limits import UNLIMITED, Run, Unlimited, enforcer_here
from chatlanes.telegram.flood import FloodWait, OpenGate, Parking, ParkUpdate, RunGate, Waiting
from chatlanes.updates.decoding import read

logger = get_task_logger(__name__)

TASK = "tasks.update"

slow_runs = SlowRuns()

#: The delay before an update of an unknown bot is tried again. Short, because a wrong configuration is soon fixed.
UNKNOWN_BOT_AGAIN_AFTER_S = 60.0


#: The delay before an update is tried again, in any process, after the bot could not start in this one.
START_AGAIN_AFTER_S = 3.0


class UnknownBotError(Exception):
    """The update belongs to a bot that this worker does not serve."""


class UpdateTask(lanes.LaneTask):
    """The hard limit counts as a failed attempt. A bot of coroutines runs on the event loop, without threads."""

    abstract = True

    def loop_of(self, message_id: str) -> EventLoop | None:
        served = bots().of(message_id)
        if served is None or not served.is_fully_async or ":broadcast:" in message_id:
            return None
        return event_loop()

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
    """Run the bot on one update, as Telegram sent it."""
    request = self.request
    delivery = delivery_of(request, app.lanes)
    message_id = request.id
    this_attempt = 1 if delivery is None else delivery.attempt + delivery.died
    served = bots().of(message_id)
    if served is None:
        park_unknown(message_id, delivery)
    parking = Parking()
    try:
        ctx = context_of(content, served, delivery, parking, this_attempt)
        with (
            about(lambda: Ids(message_id, ctx.chat_id, this_attempt)),
            traces.here().running(request, ctx, delivery, ending_of) as span,
        ):
            if delivery is not None and (reason := reason_to_skip(served, ctx, delivery)):
                skip(delivery, reason)
                span.set(outcome="skipped")
                return
            if delivery is not None and settle_migrated(ctx, delivery):
                span.set(outcome="moved")
                return
            attempt(request, served, ctx, delivery, parking)
    except SoftTimeLimitExceeded as late:
        if delivery is not None and delivery.is_cut_off:
            raise lanes.RedisAway("Redis was away until UPDATE_TIMEOUT") from late
        # The soft limit interrupted this function, not the handler. Celery acknowledges a task that raised, unless it
        # raised Reject.
        raise Reject("interrupted while its outcome was being recorded", requeue=True) from late


def context_of(
    content: dict[str, Any], served: ServedBot, delivery: lanes.Delivery | None, parking: Parking, this_attempt: int
) -> Context:
    """The context of this run. `content` is the first update; the delivery has those that were collected with it."""
    limit_s = served.settings.update_timeout
    deadline_s = None if limit_s is None else monotonic() + limit_s
    later = () if delivery is None else delivery.bodies
    updates = (content, *(read(body.encode())[0][0] for body in later))
    stored = None if delivery is None else Stored(delivery, parking)
    timer_plan = served.timer_plan
    if delivery is not None and (due := due_of(delivery.id) or occurrences.due_of(content)) is not None:
        timer_plan = replace(timer_plan, late_s=max(delivery.time_ms() / 1000 - due.timestamp(), 0.0))
    return Context(
        updates[-1],
        calls_of(
            served.api,
            delivery,
            "skip" if broadcasts.KIND in content else served.settings.uncertain_call,
            lambda: gate_of(served, delivery, parking, deadline_s),
        ),
        attempt=this_attempt,
        deadline_s=deadline_s,
        appended_s=None if delivery is None else monotonic() - delivery.age_s,
        stored=stored,
        session_plan=served.session_plan,
        fence=None if delivery is None else int(delivery.fence),
        updates=updates,
        stream_first=served.settings.stream_first,
        broadcasting=None if stored is None else Broadcasting(served.settings, stored),
        timer_plan=timer_plan,
        interrupts=Interrupts(delivery) if delivery is not None and delivery.is_interruptible else None,
    )


def gate_of(
    served: ServedBot, delivery: lanes.Delivery | None, parking: Parking, deadline_s: float | None
) -> RunGate | OpenGate:
    """The flood-control gate for this run. An update without a lane cannot be parked, so its gate is open."""
    return OpenGate() if delivery is None else RunGate(served.gate, Waiting(delivery, parking, deadline_s))


def attempt(request: Any, served: ServedBot, ctx: Context, delivery: lanes.Delivery | None, parking: Parking) -> None:
    """Run the bot once. A failure or timeout is reported to the bot's hooks, Redis and Celery."""
    run = UNLIMITED if ctx.deadline_s is None else limited_run(request, served, ctx, delivery)
    recipient = recipient_of(served, ctx, delivery)
    error: Exception | None = None
    try:
        with run.limited():
            run_bot(recipient or served.bot_for(ctx), ctx)
    except ParkUpdate:
        pass  # `parking` remembers it, because a bot may swallow the exception
    except Exception as raised:
        error = raised
    if delivery is not None:
        check_lease(run, delivery, error)
    if delivery is not None and isinstance(error, BotStartError):
        park(delivery, START_AGAIN_AFTER_S, fit_for_celery(error, secrets()))
    if delivery is not None and (outage := outage_of(delivery, parking, error)):
        raise outage
    if not run.is_reported and (ctx.timed_out or isinstance(error, UpdateTimeoutError)):
        call_hook(served.bot.on_timeout, hook_context(ctx, "timeout", delivery))
    if delivery is not None and parking.is_wanted:
        park(delivery, parking.delay_s(), FloodWait(parking.reason))
    if error is None:
        settle(ctx, delivery, recipient)
        return
    call_hook(served.bot.on_error, hook_context(ctx, "error", delivery), error)
    if delivery is None:  # called directly, or from an ordinary queue: Celery handles the error
        raise fit_for_celery(error, secrets()) from None
    fail_run(served, delivery, error, recipient)


def fail_run(served: ServedBot, delivery: lanes.Delivery, error: Exception, recipient: Recipient | None) -> NoReturn:
    """Retry or bury the update; a recipient of a broadcast is not buried. Always raises."""
    if recipient is not None:
        recipient.end_after(error)
    fail(served, delivery, error, secrets())


def recipient_of(served: ServedBot, ctx: Context, delivery: lanes.Delivery | None) -> Recipient | None:
    """The run of a broadcast's recipient; None for every other update."""
    if delivery is None or ctx.kind != broadcasts.KIND:
        return None
    return Recipient(served, ctx.update, delivery)


def check_lease(run: Run | Unlimited, delivery: lanes.Delivery, error: Exception | None) -> None:
    """Raises Retry if a newer update has interrupted the run, and Ignore if its lease was lost."""
    if delivery.is_interrupted:
        interrupted(delivery)
    if run.is_evicted or delivery.is_lost():
        raise Ignore(f"the lease of {delivery.id} was lost before its handler ended") from (
            error and fit_for_celery(error, secrets())
        )


def outage_of(delivery: lanes.Delivery, parking: Parking, error: Exception | None) -> lanes.RedisAway | None:
    """The RedisAway error if a Redis outage ended the run, even if the bot swallowed or replaced it.

    Only our own clients raise RedisAway. An error from the bot's own Redis client is an ordinary failure.
    """
    if isinstance(error, lanes.RedisAway):
        return error
    if isinstance(error, UpdateTimeoutError) and delivery.is_cut_off:
        return lanes.RedisAway("Redis was away until UPDATE_TIMEOUT")
    return parking.outage


def limited_run(request: Any, served: ServedBot, ctx: Context, delivery: lanes.Delivery | None) -> Run:
    """A run with UPDATE_TIMEOUT, enforced as far as this pool allows."""
    limit_s = served.settings.update_timeout
    assert limit_s is not None, "only a run with a deadline is limited"  # noqa: S101

    def report() -> None:
        if not ctx.interrupted:
            call_hook(served.bot.on_timeout, hook_context(ctx, "timeout", delivery))

    run = Run(
        limit_s,
        enforcer_here(forks=app.lanes.in_flight.forks),
        report=report,
        evict=lambda: evict(app, run, request, served, ctx, delivery),
    )
    return run


def run_bot(bot: Bot | Recipient, ctx: Context) -> None:
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
    """Keep, delete or mark what interrupted runs had streamed. Raises what a call raises."""
    previous = [] if ctx.interrupts is None else ctx.interrupts.recorded
    calls = ctx.api
    if isinstance(calls, Calls) and any(":stream-" in call.what for call in previous):
        from chatlanes.bot.stream import finish_interrupted  # a bot without streams does not import them

        run_blocking(lambda: finish_interrupted(calls, previous))


def settle(ctx: Context, delivery: lanes.Delivery | None, recipient: Recipient | None = None) -> None:
    """Write the handler's stored data, and the result of a recipient, and settle its update, in one step. Without such
    writes, Celery's acknowledgement settles the update.
    """
    writes = [*(ctx.stored.writes if ctx.stored else ()), *(recipient.writes if recipient else ())]
    if delivery is not None and writes:
        commit(delivery, writes)


def reason_to_skip(served: ServedBot, ctx: Context, delivery: lanes.Delivery) -> str | None:
    """Why the settings say not to run this update; None if it runs. A failed or replayed timer is not too late."""
    settings = served.settings
    if settings.stale == "skip" and ctx.is_stale:
        return f"its {ctx.kind} is {ctx.age_s:.0f} s old, and Telegram no longer accepts an answer to it (STALE=skip)"
    if settings.timer_late == "skip" and is_timer(ctx.update) and ctx.attempt == 1 and not delivery.is_replayed:
        late_s = ctx.timer.late_s
        if late_s > settings.timer_late_after:
            return f"its timer is {late_s:.0f} s late (TIMER_LATE=skip)"
    return None


def skip(delivery: lanes.Delivery, reason: str) -> None:
    """Settle the update without running its handler. Raises the same as `commit`."""
    commit(delivery, skipped=True)
    logger.info("%s: not run: %s", delivery.id, reason)


def settle_migrated(ctx: Context, delivery: lanes.Delivery) -> bool:
    """True for a timer of a group that has become a supergroup: it is settled, and set again for the new chat. Raises
    the same as `commit`.
    """
    try:
        write = set_again(ctx.update, delivery, ctx.timer_plan)
    except lanes.LeaseLost as lost:
        raise Ignore(f"the lease of {delivery.id} was lost before its handler began") from lost
    if write is None:
        return False
    commit(delivery, [write])
    logger.info("%s: not run here: its group has become a supergroup, and it runs in the new chat", delivery.id)
    return True


def park_unknown(message_id: str, delivery: lanes.Delivery | None) -> NoReturn:
    """Park an update of a bot whose token this worker does not have: no other bot may run it, and it must not be lost.

    It stays first in its lanes until a worker that serves its bot fetches it. Always raises.
    """
    error = UnknownBotError(
        f"{message_id} belongs to a bot whose token this worker does not have; it waits for a worker that has it"
    )
    if delivery is None:
        raise error
    logger.error("%s", error)
    park(delivery, UNKNOWN_BOT_AGAIN_AFTER_S, error)
