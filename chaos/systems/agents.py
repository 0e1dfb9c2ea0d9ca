"""The agents of a chaos run: each pays for a search, asks its user, pays for an order and streams a confirmation. A
user may add something at any moment, which the run in progress takes (INTERRUPT=steer), or stop it. Every run and every
payment is recorded.
"""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager
from random import random
from typing import Any

from chaos.systems.recording import RecordedRun, message_id, recorded
from chatlanes import Context
from chatlanes.bot.calls.questions import Asked
from chatlanes.updates import keys_of

KIND, STEP = "agent", "step"
#: Their private chats begin here; all others are below.
FIRST_CHAT = 5_001
ORDER, ADDITION, STOP, YES, TOO_LATE = "/order", "add", "/stop", "Yes", "too late"
#: COLLECT, as a setting: an order and the additions to it are a group, and no other update is in one.
GROUP = f"{__name__}:group"
ANSWER_WITHIN_S = 8.0
#: How long an agent thinks, at most, at each of three places.
THINKS_S = 1.0
#: The calls of an agent, by number: an offer, the question, a confirmation.
OFFER, QUESTION, CONFIRMATION = range(3)
#: The place of the confirmation in the journal: the first message of the first stream.
CONFIRMED_AT = "stream1:part1:0"
#: The confirmation is written in this many pieces.
PIECES = 8


def group(update: dict[str, Any]) -> str | None:
    return "order" if update.get("message", {}).get("text") in (ORDER, ADDITION) else None


def handle(ctx: Context) -> None:
    """Starts an agent, or continues it with the answer to its question. Additions that no run has taken are a run of
    their own, which does nothing. Ignores all other messages.
    """
    if not ctx.texts or ctx.texts[0] not in (ORDER, ADDITION):
        return
    with _recorded(ctx) as run:
        if ctx.texts[0] == ADDITION:
            return
        _pay(ctx, run, "search")
        _think(ctx, run)
        run.call(OFFER, ctx.chat_id, f"{KIND} {run.update}.{OFFER}")
        _think(ctx, run)
        run.write("continued", answer=_ask(ctx, run))
        _think(ctx, run)
        _pay(ctx, run, "charge")
        _confirm(ctx, run)


def on_stop(ctx: Context) -> None:
    with _recorded(ctx) as run:
        run.call(OFFER, ctx.chat_id, f"{KIND} {run.update}.{OFFER}")


def _recorded(ctx: Context) -> AbstractContextManager[RecordedRun]:
    keys = keys_of(ctx.update, os.environ["ORDER_BY"])
    had = [update["update_id"] for update in ctx.updates]
    return recorded(ctx, had[0], keys, kind=KIND, message=message_id(), had=had)


def _think(ctx: Context, run: RecordedRun) -> None:
    time.sleep(random() * THINKS_S)  # noqa: S311 - not secret
    for update in ctx.arrivals():
        run.write("took", update=update["update_id"])


def _ask(ctx: Context, run: RecordedRun) -> str:
    ended = None
    with run.calling(QUESTION):
        try:
            text = f"{KIND} {run.update}.{QUESTION}"
            return str(ctx.ask(text, buttons=[YES, "No"], timeout=ANSWER_WITHIN_S, default=TOO_LATE))
        except Asked as asked:  # the question is sent, and this run ends
            ended = asked
    raise ended


def confirmation(order: int) -> list[str]:
    """The pieces of the confirmation. The first is long enough to be sent at once."""
    return [f"{KIND} {order}.{CONFIRMATION} is confirmed, with these details:", *(f" {n}" for n in range(PIECES))]


def _confirm(ctx: Context, run: RecordedRun) -> None:
    with run.calling(CONFIRMATION), ctx.stream() as out:
        for piece in confirmation(run.update):
            out.write(piece)
            time.sleep(random() * THINKS_S / PIECES)  # noqa: S311 - not secret


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
