"""TYPING=on: while a handler runs, its chat shows that the bot is typing.

Guarantees that no request leaves after the handler has ended, when another worker may run the update, or during a pause
of flood control. The requests never fail an update: an error ends them, or they are made again later.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import Any

from redis.exceptions import RedisError

from celery_lanes.errors import LeaseLost
from celery_lanes.runtime.threads import Alarms, run_blocking
from chatlanes import traces
from chatlanes.bot.addressing import chat_of_reply
from chatlanes.bot.calls.run_calls import Calls, ending_of
from chatlanes.bot.timers import KIND as TIMER
from chatlanes.telegram.client import Prepared, prepare
from chatlanes.telegram.errors import BotApiError, NetworkError, ServerError, TooManyRequests
from chatlanes.updates import parse, part

#: Most handlers take less; their chat shows nothing.
FIRST_AFTER_S = 0.5
#: Telegram shows the action for 5 s.
EVERY_S = 4.5
#: How long the end of a handler waits for a request in flight. After this time the request has long left.
ENDS_WITHIN_S = 5.0

#: Updates whose user waits for an answer in the chat. Telegram has no actions in channels.
KINDS = frozenset({"message", "edited_message", "business_message", "edited_business_message", "callback_query", TIMER})

ALARMS = Alarms()


def action_of(update: dict[str, Any]) -> dict[str, Any] | None:
    """The parameters of sendChatAction. None if nobody waits in the chat, and for an ephemeral message, because the
    whole group would see the action.
    """
    parsed = parse(update)
    chat = part(parsed.place, "chat")
    if parsed.kind not in KINDS or parsed.chat is None or parsed.ephemeral is not None:
        return None
    if chat.get("type") == "channel" or chat.get("is_direct_messages"):
        return None
    return {**chat_of_reply(parsed), "action": "typing"}


class TypingAction:
    """The requests of one run."""

    def __init__(self, calls: Calls, action: dict[str, Any]) -> None:
        self._calls, self._action = calls, action
        self._sending = threading.Lock()
        self._is_over = False
        self._alarm = 0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Wraps a handler."""
        self._again(FIRST_AFTER_S)
        try:
            yield
        finally:
            self._is_over = True
            ALARMS.off(self._alarm)
            if not self._sending.acquire(blocking=False):
                run_blocking(partial(self._sending.acquire, timeout=ENDS_WITHIN_S))

    def _again(self, after_s: float) -> None:
        self._alarm = ALARMS.on(after_s, partial(copy_context().run, self._show))

    def _show(self) -> None:
        with self._sending:
            if self._is_over:
                return
            call = prepare("sendChatAction", self._action)
            with suppress(BotApiError, LeaseLost, RedisError):  # the bot is blocked, or the lease is lost
                wait_s = self._sent(call)
                if not self._is_over:
                    self._again(wait_s)

    def _sent(self, call: Prepared) -> float:
        """Send the action, if flood control allows it. Returns how long to wait before the next one."""
        calls = self._calls
        # Not the handler's own gate: its waits may park the update.
        passage = None if calls.gate is None else calls.gate.for_hook().passage(call, calls.ask)
        if passage and (held := passage.held(calls.ask(*passage.commands()))):
            return max(held.wait_s, EVERY_S)
        if self._is_over:  # Redis has answered late, and the handler's end has not waited for it
            return EVERY_S
        try:
            with traces.here().calling(call.method, call.chat, calls.api.url, ending_of):
                calls.send(call)
        except TooManyRequests as error:
            if passage is None:
                raise
            return max(passage.refused(error).wait_s, EVERY_S)
        except (NetworkError, ServerError):
            return EVERY_S
        if passage:
            passage.accepted()
        return EVERY_S
