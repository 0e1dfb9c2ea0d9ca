"""The timers of a chaos run: every update sets some, each due at a time of its own."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator

from chaos.systems.recording import message_id, recorded
from chatlanes import Context
from chatlanes.updates import keys_of

#: How many timers each update sets; and the longest time until one is due.
EACH, LONGEST_S = "CHAOS_TIMERS", "CHAOS_TIMERS_LONGEST_S"
KIND = "timer"


def names(update: int, each: int) -> list[str]:
    return [f"{update}.{number}" for number in range(each)]


def set_timers(ctx: Context, update: int) -> None:
    for name, after_s in _planned(update):
        ctx.later(after_s, {"from_s": time.time() + after_s}, name)


def on_timer(ctx: Context) -> None:
    """Records its run, and sends one message."""
    timer = ctx.timer
    update, keys = int(timer.name.partition(".")[0]), keys_of(ctx.update, os.environ["ORDER_BY"])
    times = {"due_s": timer.due.timestamp(), "from_s": timer.data["from_s"]}
    with recorded(ctx, update, keys, kind=KIND, name=timer.name, message=message_id(), **times) as run:
        run.call(0, ctx.chat_id, f"{KIND} {timer.name}")


def _planned(update: int) -> Iterator[tuple[str, float]]:
    """Each name, and the seconds until it is due: the same in each run of the update."""
    chance = random.Random(update)  # noqa: S311 - reproducible, not secret
    for name in names(update, int(os.environ.get(EACH, "0"))):
        yield name, chance.random() * float(os.environ[LONGEST_S])
