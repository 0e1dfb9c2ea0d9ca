"""Ends conversations whose conversation_timeout has passed, after their TIMEOUT handlers have run.

The timer of a conversation is set with each update that it handles, and is due `conversation_timeout` later
(slots.py). It carries the update. If the conversation has handled another update since, nothing happens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from telegram import Update
from telegram.ext import ConversationHandler, Job

from chatlanes.bot.adapters.ptb.conversations import AnyApplication
from chatlanes.bot.adapters.ptb.slots import Position, Slot


class _Data(NamedTuple):
    """The fields that ConversationHandler._trigger_timeout reads."""

    conversation_key: Any
    update: Update
    application: AnyApplication
    callback_context: Any


class TimeoutJob(Job[Any]):
    """The job whose callback is the framework's own code for the end of a conversation."""

    id = "timeout"

    def __init__(self, handler: ConversationHandler[Any], data: _Data) -> None:
        # Without the constructor of Job, which needs APScheduler.
        self.callback, self.data, self.name = handler._trigger_timeout, data, handler._trigger_timeout.__name__
        self.chat_id = self.user_id = self._job = None
        self._removed, self._enabled = False, True


async def time_out(application: AnyApplication, name: str, slots: Iterable[Slot], update: Update) -> None:
    """Run the TIMEOUT handlers of a conversation with its last update, and end it."""
    for each in slots:
        if isinstance(each, Position) and each.is_timed_out(name):
            context = application.context_types.context.from_update(update, application)
            await context.refresh_data()
            job = TimeoutJob(each.handler, _Data(each.key, update, application, context))
            each.handler.timeout_jobs[each.key] = job
            await job._run(application)
