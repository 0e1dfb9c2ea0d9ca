"""The bot of a chaos run: makes calls, counts in its session, and sets timers. It records each step (recording.py)."""

from __future__ import annotations

import os
import signal
import time
from random import random
from typing import Any, Protocol

from chaos.systems import agents, poison, timers
from chaos.systems.recording import RecordedRun, recorded
from chatlanes import Bot
from chatlanes.updates import keys_of

SLOWEST_S, ORDER = "CHAOS_SLOWEST_S", "ORDER_BY"
#: The session key that counts the updates of a chat.
HANDLED = "handled"


class PoisonError(Exception):
    """Raised by a poison update, and by a malformed one, in each run."""


class HandlerContext(Protocol):
    """The part of a context that this bot uses, under lanes and under the recipe, which has no `updates`."""

    @property
    def update(self) -> dict[str, Any]: ...
    @property
    def chat_id(self) -> int | None: ...
    @property
    def attempt(self) -> int: ...
    @property
    def session(self) -> dict[str, Any]: ...
    def call(self, method: str, /, **params: Any) -> Any: ...


def handle(ctx: HandlerContext) -> None:
    if ctx.update["update_id"] < 0:
        raise PoisonError("a malformed update was replayed")
    if (ctx.chat_id or 0) >= agents.FIRST_CHAT:
        agents.handle(ctx)  # type: ignore[arg-type]
        return
    updates = tuple(update["update_id"] for update in getattr(ctx, "updates", [ctx.update]))
    keys = keys_of(ctx.update, os.environ[ORDER])
    with recorded(ctx, updates[0], keys, attempt=ctx.attempt, updates=updates) as run:
        _handle(ctx, run, updates)


def _handle(ctx: HandlerContext, run: RecordedRun, updates: tuple[int, ...]) -> None:
    if timers.EACH in os.environ:
        timers.set_timers(ctx, run.update)  # type: ignore[arg-type]
    _work()
    run.call(0, ctx.chat_id, _text(updates, 0))
    _work()
    if any(map(poison.raises, updates)):
        raise PoisonError(f"update {run.update}")
    if any(map(poison.kills, updates)):
        run.write("die")
        os.kill(os.getpid(), signal.SIGKILL)
    run.call(1, ctx.chat_id, _text(updates, 1))
    ctx.session[HANDLED] = ctx.session.get(HANDLED, 0) + len(updates)


def _text(updates: tuple[int, ...], number: int) -> str:
    """After an interrupt the group is larger, and its run sends other messages."""
    return f"{updates[0]}.{number}" + (f".{len(updates)}" if updates[1:] else "")


def _work() -> None:
    time.sleep(random() ** 3 * float(os.environ[SLOWEST_S]) / 2)  # noqa: S311 - mostly short, sometimes long


bot = Bot(handle, on_timer=timers.on_timer, on_stop=agents.on_stop)
