"""The run of a call of the outbox, as that of a recipient of a broadcast.

The result is written in the step that settles the call. A call that Telegram refuses is over. One that fails in any
other way is an ordinary failure of its message: it is tried again, first in its lane, and finally buried, so an
operator may replay it. A call that was begun by a run that died follows UNCERTAIN_CALL.
"""

from __future__ import annotations

from typing import Any

import celery_lanes as lanes
from celery_lanes.protocol import Write
from chatlanes.bot.context import Context
from chatlanes.broadcasts import Reason
from chatlanes.outbox.call import KIND
from chatlanes.outbox.results import State, ending
from chatlanes.tasks.bots import ServedBot
from chatlanes.tasks.broadcasts import run_once

_STATES = {Reason.SENT: State.SENT, Reason.UNCERTAIN: State.UNCERTAIN}


class Sending:
    """Called in place of the bot's handler. Adds to `writes` what records the result."""

    def __init__(
        self, served: ServedBot, content: dict[str, Any], delivery: lanes.Delivery, writes: list[Write]
    ) -> None:
        self._served, self._delivery, self._writes = served, delivery, writes
        self._method, self._params = content[KIND]["method"], content[KIND]["params"]

    def __call__(self, ctx: Context) -> None:
        ended = run_once(self._served, ctx, lambda: ctx.call(self._method, **self._params))
        if ended.reason is Reason.UNCERTAIN and ended.error and self._served.settings.uncertain_call == "repeat":
            raise ended.error  # the next run repeats the call
        state, id_, now_ms = _STATES.get(ended.reason, State.REFUSED), self._delivery.id, self._delivery.time_ms()
        self._writes += ending(id_, now_ms, state, result=ended.result, error=ended.error, why=ended.detail)
