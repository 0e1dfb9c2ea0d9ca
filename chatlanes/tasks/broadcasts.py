"""The tasks of broadcasts: one run of a feeder, and the run of one recipient; and the run of a call of the outbox.

A result is written in the step that settles its message. A recipient's call that was begun by a run that died is not
made again: its recipient is counted as uncertain. A recipient that was buried and replayed after the broadcast has
ended has a result already, which its new one replaces.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from celery.utils.log import get_task_logger

import celery_lanes as lanes
from celery_lanes.protocol import Write, plain
from celery_lanes.worker.delivery import delivery_of
from chatlanes.bot.bot import Bot
from chatlanes.bot.calls.run_calls import Calls
from chatlanes.bot.context import Context
from chatlanes.bot.loader import load_bot
from chatlanes.broadcasts import FEED_TASK, Broadcasts, Call, Feeder, Reason, detail_of, feed_again, keys, reason_of
from chatlanes.outbox import KIND as OUTBOX
from chatlanes.outbox import State, ending
from chatlanes.tasks.app import app
from chatlanes.tasks.bots import ServedBot, bots, call_hook
from chatlanes.tasks.settings import secrets
from chatlanes.tasks.settlement import commit, decision_for, end_unserved, fit_for_celery, park

logger = get_task_logger(__name__)

KIND = "broadcast"
#: The delay before a feeder tries again after an error, such as a full Redis.
FEED_AGAIN_AFTER_S = 5.0


@app.task(name=FEED_TASK, bind=True, base=lanes.LaneTask, max_retries=None)
def feed_broadcast(self: lanes.LaneTask, of: str) -> None:
    """Feed one broadcast, `<bot id>:<broadcast id>`, and set the timer for the next time. If its bot was removed with
    its waiting updates, it is cancelled.
    """
    delivery = delivery_of(self.request, app.lanes)
    if delivery is None:
        raise LookupError(f"broadcast {of} cannot be fed here: it has no lane")
    served = bots().of(of)
    settings = served.settings if served else bots().removed(of)
    if settings is None:
        end_unserved(of, delivery)
        return
    id_ = of.partition(":")[2]
    try:
        feeder = Feeder(app.lanes.store, settings)
        if served is None:
            feeder.cancel_all()
        in_ms = feeder.feed(id_)
    except lanes.RedisAway:
        raise
    except Exception as error:
        logger.exception("broadcast %s: could not be fed; it is tried again in %.0f s", of, FEED_AGAIN_AFTER_S)
        park(delivery, FEED_AGAIN_AFTER_S, error)
    commit(delivery, [] if in_ms is None else [feed_again(settings, id_, in_ms)])


class RecipientResult(NamedTuple):
    """How the part of one chat ended."""

    reason: Reason
    detail: str = ""
    result: Any = None
    error: Exception | None = None


def run_once(served: ServedBot, ctx: Context, run: Callable[[], Any]) -> RecipientResult:
    """Run the call or function for a chat. Raises its error if another attempt may succeed."""
    try:
        result = run()
    except Exception as error:
        reason = reason_of(error)
        if reason is None:
            raise
        if reason in (Reason.BLOCKED, Reason.DEACTIVATED):
            call_hook(served.bot.on_blocked, ctx)
        return RecipientResult(reason, detail_of(error), error=error)
    if isinstance(ctx.api, Calls) and ctx.api.journal is not None and ctx.api.journal.skipped:
        return RecipientResult(Reason.UNCERTAIN, "a worker died during the call")
    return RecipientResult(Reason.SENT, result=result)


class Recipient:
    """The run of one recipient, called in place of the bot's handler. Adds to `writes` what records its result."""

    def __init__(
        self, served: ServedBot, content: dict[str, Any], delivery: lanes.Delivery, writes: list[Write]
    ) -> None:
        body = content[KIND]
        self._served = served
        self._delivery = delivery
        self._broadcasts = Broadcasts(app.lanes.store.client, served.settings.bot_id)
        self._id, self._number, self._chat = str(body["id"]), int(body["number"]), int(body["chat"]["id"])
        self._writes = writes
        self._is_counted = False

    def __call__(self, ctx: Context) -> None:
        state, call = self._read()
        if call is None:  # the results have expired
            return
        if state == "cancelled" and not self._may_have_called(ctx):
            self._ended(Reason.DROPPED)
        elif state == "paused" and not self._may_have_called(ctx):
            self._writes += self._broadcasts.returned(self._id, self._number, self._chat)
        else:
            self._run(call, ctx)

    def _may_have_called(self, ctx: Context) -> bool:
        """True if an earlier run may have made a call: then this one finds out, whatever the state is."""
        if self._delivery.died:
            return True
        return isinstance(ctx.api, Calls) and ctx.api.journal is not None and bool(ctx.api.journal.known(""))

    def end_after(self, error: Exception) -> None:
        """Called when a run has failed. After the last attempt, the message is settled with a result instead of buried,
        and the error is raised.
        """
        if decision_for(self._served, self._delivery, error) is None:
            detail = f"{type(error).__name__}: {error}"
            commit(self._delivery, self._result(Reason.FAILED, detail))
            raise fit_for_celery(error, secrets()) from None

    def _run(self, call: Call, ctx: Context) -> None:
        if call.handler:
            ending = run_once(self._served, ctx, lambda: handler_of(call.handler, self._served)(ctx))
        else:
            params = {**call.params, "chat_id": self._chat}
            ending = run_once(self._served, ctx, lambda: ctx.call(call.method, **params))
        self._ended(ending.reason, ending.detail)

    def _ended(self, reason: Reason, detail: str = "") -> None:
        self._writes += self._result(reason, detail)

    def _result(self, reason: Reason, detail: str) -> list[Write]:
        return self._broadcasts.result(self._id, self._chat, reason, detail, is_counted=self._is_counted)

    def _read(self) -> tuple[str, Call | None]:
        """The state of the broadcast and its call; None: it has expired. Raises RedisAway."""
        of = self._broadcasts.of(self._id)
        [(state, ended_ms)] = self._delivery.journal.ask(plain("HMGET", keys.BROADCAST + of, "state", "ended_ms"))
        if state is None:
            return "", None
        self._is_counted = ended_ms is not None
        return state.decode(), self._call(of)

    def _call(self, of: str) -> Call | None:
        """The call of a broadcast never changes, so each process reads it once."""
        if of not in _calls:
            [stored] = self._delivery.journal.ask(plain("GET", keys.CALL + of))
            if stored is None:
                return None
            if len(_calls) >= MOST_CALLS:
                _calls.clear()
            _calls[of] = Call(**json.loads(stored))
        return _calls[of]


#: The calls of the latest broadcasts that this process has read.
MOST_CALLS = 16
_calls: dict[str, Call] = {}


@cache
def handler_of(path: str, served: ServedBot) -> Bot:
    """The function that a broadcast runs for each recipient. Raises ImportPathError."""
    return load_bot(path, "--handler", served.api)


_STATES = {Reason.SENT: State.SENT, Reason.UNCERTAIN: State.UNCERTAIN}


class Sending:
    """The run of a call of the outbox, called in place of the bot's handler. Adds to `writes` what records its result.

    A call that Telegram refuses is over. One that fails in any other way is an ordinary failure of its message: it is
    tried again, first in its lane, and finally buried, so an operator may replay it. A call that was begun by a run
    that died follows UNCERTAIN_CALL.
    """

    def __init__(
        self, served: ServedBot, content: dict[str, Any], delivery: lanes.Delivery, writes: list[Write]
    ) -> None:
        self._served, self._delivery, self._writes = served, delivery, writes
        self._method, self._params = content[OUTBOX]["method"], content[OUTBOX]["params"]

    def __call__(self, ctx: Context) -> None:
        ended = run_once(self._served, ctx, lambda: ctx.call(self._method, **self._params))
        if ended.reason is Reason.UNCERTAIN and ended.error and self._served.settings.uncertain_call == "repeat":
            raise ended.error  # the next run repeats the call
        state, id_, now_ms = _STATES.get(ended.reason, State.REFUSED), self._delivery.id, self._delivery.time_ms()
        self._writes += ending(id_, now_ms, state, result=ended.result, error=ended.error, why=ended.detail)
