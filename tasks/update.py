"""The one task: run the bot on one update, and decide what becomes of it.

Promises that an update whose handler returned is settled, one whose handler raised is retried in its place and at last
buried, and one whose outcome could not be told to Redis is run again. The steps happen in this order because a process
may die between any two of them.
"""

import sys
import traceback
from functools import cache
from typing import Any, NoReturn

from celery.exceptions import Ignore, Reject, Retry, WorkerShutdown, WorkerTerminate
from greenlet import GreenletExit  # type: ignore[import-untyped]

from tasks import lanes
from tasks.bot.client import BotApi
from tasks.bot.context import Context
from tasks.bot.loader import BotImportError, Handler, load_bot
from tasks.celery import app, settings
from tasks.lanes.store import Outcome
from tasks.outcome import Bury, decide, problem_of

TASK = "tasks.update"

#: Raised inside of a handler, but no failure of its own: the worker is told to end.
ENDS_THE_WORKER = (KeyboardInterrupt, WorkerShutdown, WorkerTerminate, GreenletExit)


class HandlerEndedError(Exception):
    """The handler raised what is no Exception: sys.exit(), a cancelled future, a greenlet's timeout."""


@cache
def bot() -> Handler:
    """The bot. One that does not import ends the process with its traceback and one sentence."""
    try:
        return load_bot(settings().bot)
    except BotImportError as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        sys.exit(str(error))


@cache
def api() -> BotApi:
    token = settings().bot_token
    if token is None:
        sys.exit("BOT_TOKEN is not set: the worker calls the Bot API with it. Put it into .env or the environment.")
    return BotApi(settings().bot_api_url, token.get_secret_value())


@app.task(name=TASK, bind=True, max_retries=None)
def update(self: lanes.LaneTask, content: dict[str, Any]) -> None:
    """Run the bot on one update, as Telegram sent it."""
    delivery = self.delivery
    attempt = 1 if delivery is None else delivery.attempt
    try:
        run_bot(Context(content, api(), attempt))
    except Exception as error:
        if delivery is None:  # called by hand, or from an ordinary queue: Celery's own business
            raise
        fail(delivery, error)


def run_bot(ctx: Context) -> None:
    """Raises what the handler raises, as an Exception.

    Celery's pools lose what is none: the update would keep its lease and its thread for ever, and solo would end.
    """
    try:
        bot()(ctx)
    except (Exception, *ENDS_THE_WORKER):
        raise
    except BaseException as error:
        raise HandlerEndedError(f"the handler ended with {type(error).__name__}: {error}") from error


def fail(delivery: lanes.Delivery, error: Exception) -> NoReturn:
    """Retry or bury, and tell Celery, which tells Flower. Raises in any case."""
    problem = problem_of(error, delivery.attempt)
    decision = decide(delivery.attempt, settings())
    try:
        if isinstance(decision, Bury):
            outcome = delivery.bury(problem)
        else:
            outcome = delivery.retry(delay_s=decision.seconds, problem=problem)
    except Exception as trouble:
        # Nobody knows of the failure, and to Celery an update that raised is done: it would be lost, whatever this
        # trouble is. It is given back as if this process had died.
        raise Reject(f"could not tell Redis that {delivery.id} failed: {trouble}", requeue=True) from error
    if outcome is Outcome.LOST:
        raise Ignore(f"the lease of {delivery.id} was over when it failed") from error
    if isinstance(decision, Bury):
        raise error
    raise Retry(exc=error, when=decision.seconds) from error
