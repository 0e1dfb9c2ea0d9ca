"""Records each step of a run of the bot, before and after it, in the history of a chaos run.

A line is in the file before the run continues, even if it is killed right after: a single write to a file opened for
appending is atomic. Every call carries its run and fence in the query; its own parameters are the same in every run of
a message, so the journal recognizes it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import requests
from celery import current_task

HISTORY = "CHAOS_HISTORY"

#: The run whose call is made here; the thread of a stream inherits it.
_here: ContextVar[RecordedRun | None] = ContextVar("run", default=None)


class Caller(Protocol):
    """The part of a context that this module uses, under lanes and under the recipe."""

    def call(self, method: str, /, **params: Any) -> Any: ...


@dataclass(frozen=True)
class RecordedRun:
    """`ctx`: None if it makes no calls. `update`: the one that it runs or belongs to; 0: none."""

    ctx: Caller | None
    update: int
    name: str
    fence: str | None

    def call(self, number: int, chat_id: int | None, text: str) -> None:
        """Sends the message `number` of this run."""
        assert self.ctx is not None  # noqa: S101
        with self.calling(number):
            self.ctx.call("sendMessage", chat_id=chat_id, text=text)

    @contextmanager
    def calling(self, number: int) -> Iterator[None]:
        """Records that the block makes a call, which carries the run."""
        self.write("call", number=number)
        token = _here.set(self)
        try:
            yield
        except BaseException:
            self.write("failed", number=number)
            raise
        finally:
            _here.reset(token)
        self.write("called", number=number)

    def write(self, what: str, **more: Any) -> None:
        record = {"at_s": time.time(), "id": self.update, "run": self.name, "what": what, **more}
        os.write(_file(os.getpid()), (json.dumps(record) + "\n").encode())


@contextmanager
def recorded(ctx: Caller | None, update: int, keys: Sequence[str], **more: Any) -> Iterator[RecordedRun]:
    """Records the start and the end of a run in the lanes of these keys."""
    run = RecordedRun(ctx, update, f"{os.getpid()}:{time.monotonic_ns()}", _fence())
    run.write("start", keys=list(keys), pid=os.getpid(), fence=run.fence, **more)
    try:
        yield run
    except BaseException as error:
        run.write("raise", error=f"{type(error).__name__}: {error}"[:200])
        raise
    run.write("end")


def message_id() -> str:
    """Of the running message, without the id of the bot."""
    return str(current_task.request.id).partition(":")[2]


def _fence() -> str | None:
    """The fence of the running message; None under the recipe."""
    delivery = getattr(current_task, "delivery", None)
    return None if delivery is None else delivery.fence


def _sign(session: requests.Session, request: requests.PreparedRequest, **how: Any) -> requests.Response:
    """Adds the run right before sending, so that a retry inside the client is signed as well."""
    if run := _here.get():
        request.prepare_url(request.url, {"run": run.name, "fence": run.fence or ""})
    return _send(session, request, **how)


_send = requests.Session.send
requests.Session.send = _sign  # type: ignore[method-assign, assignment]


@cache
def _file(_: int) -> int:
    return os.open(os.environ[HISTORY], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
