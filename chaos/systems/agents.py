"""The agents of a chaos run: each pays for a search, asks its user, pays for an order and confirms it. A user may stop
it at any moment. Every run and every payment is recorded.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager

from chaos.systems.recording import RecordedRun, message_id, recorded
from chatlanes import Context
from chatlanes.bot.questions import Asked
from chatlanes.updates import keys_of

KIND, STEP = "agent", "step"
#: Their private chats begin here; all others are below.
FIRST_CHAT = 5_001
ORDER, STOP, YES, TOO_LATE = "/order", "/stop", "Yes", "too late"
ANSWER_WITHIN_S = 8.0
#: The calls of an agent, by number: an offer, the question, a confirmation.
OFFER, QUESTION, CONFIRMATION = range(3)


def handle(ctx: Context, work: Callable[[], None]) -> None:
    """Starts an agent, or continues it with the answer to its question. Ignores all other messages."""
    if ctx.text != ORDER:
        return
    with _recorded(ctx) as run:
        _pay(ctx, run, "search")
        work()
        run.call(OFFER, ctx.chat_id, f"{KIND} {run.update}.{OFFER}")
        run.write("continued", answer=_ask(ctx, run))
        work()
        _pay(ctx, run, "charge")
        work()
        run.call(CONFIRMATION, ctx.chat_id, f"{KIND} {run.update}.{CONFIRMATION}")


def on_stop(ctx: Context) -> None:
    with _recorded(ctx) as run:
        run.call(OFFER, ctx.chat_id, f"{KIND} {run.update}.{OFFER}")


def _recorded(ctx: Context) -> AbstractContextManager[RecordedRun]:
    keys = keys_of(ctx.update, os.environ["ORDER_BY"])
    return recorded(ctx, ctx.update["update_id"], keys, kind=KIND, message=message_id())


def _ask(ctx: Context, run: RecordedRun) -> str:
    ended = None
    with run.calling(QUESTION):
        try:
            text = f"{KIND} {run.update}.{QUESTION}"
            return str(ctx.ask(text, buttons=[YES, "No"], timeout=ANSWER_WITHIN_S, default=TOO_LATE))
        except Asked as asked:  # the question is sent, and this run ends
            ended = asked
    raise ended


def _pay(ctx: Context, run: RecordedRun, name: str) -> None:
    """The payment is its line in the history. A run that gets the outcome of an earlier one writes none."""
    number, paid = f"{STEP}/{name}/1", []

    def pay(key: str) -> str:
        run.write("paid", number=number, key=key)
        paid.append(key)
        return key

    ctx.step(name, pay)
    if paid:
        run.write("called", number=number)
