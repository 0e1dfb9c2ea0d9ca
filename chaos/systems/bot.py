"""The bot of a chaos run: makes calls, counts in its session, and records each step before and after it.

A line is in the file before the handler continues, even if it is killed right after: a single write to a file opened
for appending is atomic. Every call carries its run and fence in the query; its own parameters are the same in every
run of an update, so the journal recognizes it.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import dataclass
from functools import cache
from random import random
from typing import Any, Protocol

import requests
from celery import current_task

from chaos.systems import poison, timers
from chatlanes import Bot
from chatlanes.updates import keys_of

HISTORY, SLOWEST_S, ORDER = "CHAOS_HISTORY", "CHAOS_SLOWEST_S", "ORDER_BY"
#: The session key that counts the updates of a chat.
HANDLED = "handled"

_here = threading.local()


class PoisonError(Exception):
    """Raised by a poison update in each run."""


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
    updates = tuple(update["update_id"] for update in getattr(ctx, "updates", [ctx.update]))
    run = _Run(ctx, f"{os.getpid()}:{time.monotonic_ns()}", _fence(), updates)
    keys = keys_of(ctx.update, os.environ[ORDER])
    run.write("start", keys=keys, pid=os.getpid(), fence=run.fence, attempt=ctx.attempt, updates=updates)
    try:
        _handle(ctx, run)
    except BaseException as error:
        run.write("raise", error=f"{type(error).__name__}: {error}"[:200])
        raise
    run.write("end")


def _handle(ctx: HandlerContext, run: _Run) -> None:
    if timers.EACH in os.environ:
        timers.set_timers(ctx, run.first)  # type: ignore[arg-type]
    _work()
    run.call(0)
    _work()
    if any(map(poison.raises, run.updates)):
        raise PoisonError(f"update {run.first}")
    if any(map(poison.kills, run.updates)):
        run.write("die")
        os.kill(os.getpid(), signal.SIGKILL)
    run.call(1)
    ctx.session[HANDLED] = ctx.session.get(HANDLED, 0) + len(run.updates)


@dataclass(frozen=True)
class _Run:
    ctx: HandlerContext
    name: str
    fence: str | None
    updates: tuple[int, ...]  #: of the group, oldest first; usually one

    @property
    def first(self) -> int:
        return self.updates[0]

    def call(self, number: int) -> None:
        self.write("call", number=number)
        _here.run = self
        try:
            self.ctx.call("sendMessage", chat_id=self.ctx.chat_id, text=self._text(number))
        except BaseException:
            self.write("failed", number=number)
            raise
        finally:
            _here.run = None
        self.write("called", number=number)

    def _text(self, number: int) -> str:
        """After an interrupt the group is larger, and its run sends other messages."""
        return f"{self.first}.{number}" + (f".{len(self.updates)}" if self.updates[1:] else "")

    def write(self, what: str, **more: Any) -> None:
        record = {"at_s": time.time(), "id": self.first, "run": self.name, "what": what, **more}
        os.write(_file(os.getpid()), (json.dumps(record) + "\n").encode())


def _work() -> None:
    time.sleep(random() ** 3 * float(os.environ[SLOWEST_S]) / 2)  # noqa: S311 - mostly short, sometimes long


def _fence() -> str | None:
    """The fence of the running update; None under the recipe."""
    delivery = getattr(current_task, "delivery", None)
    return None if delivery is None else delivery.fence


def _sign(session: requests.Session, request: requests.PreparedRequest, **how: Any) -> requests.Response:
    """Adds the run right before sending, so that a retry inside the client is signed as well."""
    run = getattr(_here, "run", None)
    if run is not None:
        request.prepare_url(request.url, {"run": run.name, "fence": run.fence or ""})
    return _send(session, request, **how)


_send = requests.Session.send
requests.Session.send = _sign  # type: ignore[method-assign, assignment]


@cache
def _file(_: int) -> int:
    return os.open(os.environ[HISTORY], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


bot = Bot(handle, on_timer=timers.on_timer)
