"""Group commit: updates that arrive during an append share the next one.

Guarantees one append at a time, each update in the first that starts after it arrived, and an answer within
ANSWER_WITHIN_S: durable, or not known to be. An update that was not known to be durable may still be appended: Telegram
sends it again, and the append drops what it has seen.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from typing import Any

from redis.exceptions import RedisError

from chatlanes.lanes.errors import ServerUnfit, complaint
from chatlanes.lanes.protocol.replies import Appended

log = logging.getLogger("poller")

#: Telegram waits about a minute for an answer, and holds up the chat meanwhile.
ANSWER_WITHIN_S = 4.0
#: A larger script would delay the fetches of workers.
MOST_IN_ONE = 500
#: Telegram sends at most 100 requests at a time. More waiting ones have another cause, and cost memory.
MOST_WAITING = 2_000
#: A lasting failure of Redis is logged at this rate.
LOG_EVERY_S = 30.0

#: Blocks; raises RedisError, ServerUnfit.
Append = Callable[[list[Any]], Appended]


class NotDurableError(Exception):
    """It is unknown whether Redis holds the update."""


@dataclass(eq=False)
class PendingUpdate:
    """An update and the request that waits for it. `done` is cancelled when the request has ended."""

    update: Any
    done: asyncio.Future[None]


@dataclass
class GroupCommit:
    """Of one bot, on one event loop. `on_appended` is called there after every append that took effect."""

    append: Append
    on_appended: Callable[[Appended], None]
    #: Of the thread that waits for Redis.
    name: str = "appends"

    _waiting: list[PendingUpdate] = field(default_factory=list, init=False)
    _committing: list[PendingUpdate] = field(default_factory=list, init=False)
    _working: asyncio.Task[None] | None = field(default=None, init=False)
    _due: asyncio.TimerHandle | None = field(default=None, init=False)
    _calls: "SimpleQueue[PendingAppend]" = field(default_factory=SimpleQueue, init=False)
    _logged_at_s: float = field(default=float("-inf"), init=False)
    _trouble: str = field(default="", init=False)

    def __post_init__(self) -> None:
        # A daemon: a Redis that does not answer must not keep the process from its end.
        Thread(target=self._append_for_ever, name=self.name, daemon=True).start()

    async def add(self, update: Any) -> None:
        """Returns when Redis holds the update durably. Raises NotDurableError."""
        if len(self._waiting) >= MOST_WAITING:
            raise NotDurableError("too many updates wait for Redis")
        waiting = PendingUpdate(update, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self.look()
        try:
            await asyncio.wait_for(waiting.done, ANSWER_WITHIN_S)
        except TimeoutError:
            raise NotDurableError(f"Redis did not take it within {ANSWER_WITHIN_S:g} s") from None

    def give_up(self) -> None:
        """Stop waiting for Redis: the receiver ends."""
        for each in (*self._committing, *self._waiting):
            if not each.done.done():
                each.done.set_exception(NotDurableError("the receiver stops"))

    def look(self) -> None:
        """Start an append, also an empty one: it releases held updates that are due."""
        if self._working is None:
            self._working = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        try:
            while True:
                await self._commit(self._next_batch())
                if not self._waiting:
                    return
        finally:
            self._working = None

    def _next_batch(self) -> list[PendingUpdate]:
        """The oldest that somebody still waits for."""
        waiting = [each for each in self._waiting if not each.done.done()]
        self._committing, self._waiting = waiting[:MOST_IN_ONE], waiting[MOST_IN_ONE:]
        return self._committing

    async def _commit(self, batch: list[PendingUpdate]) -> None:
        updates = [each.update for each in batch]
        try:
            appended = await self._on_the_thread(updates)
        except Exception as error:  # whatever it is, Telegram keeps the updates
            problem: Exception | None = NotDurableError(str(error))
        else:
            # Dying here, nobody is answered: Telegram sends all of them again, and append drops what it has seen.
            self._look_when_due(appended.due_ms)
            self.on_appended(appended)
            problem = None
        for each in batch:
            if not each.done.done():
                each.done.set_exception(problem) if problem else each.done.set_result(None)

    def _look_when_due(self, due_ms: int | None) -> None:
        """When what is held has waited for long enough, by whomever it was brought. Should this process die before,
        another's next append lets it go, or a worker's sweep.
        """
        if self._due:
            self._due.cancel()
        self._due = None if due_ms is None else asyncio.get_running_loop().call_later(due_ms / 1000, self.look)

    # -- the thread that waits for Redis

    async def _on_the_thread(self, updates: list[Any]) -> Appended:
        call = PendingAppend(updates, asyncio.get_running_loop().create_future())
        self._calls.put(call)
        return await call.answer

    def _append_for_ever(self) -> None:
        while True:
            call = self._calls.get()
            try:
                appended = self.append(call.updates)
            except Exception as error:  # the caller's to see
                self._failed(error)
                call.finish(None, error)
            else:
                self._worked()
                call.finish(appended, None)

    def _worked(self) -> None:
        if self._trouble:
            log.info("Redis: works again")
            self._trouble = ""

    def _failed(self, error: Exception) -> None:
        now_s, trouble = time.monotonic(), f"{type(error).__name__}: {error}"
        if trouble == self._trouble and now_s - self._logged_at_s < LOG_EVERY_S:
            return
        self._trouble, self._logged_at_s = trouble, now_s
        is_foreseen = isinstance(error, (RedisError, ServerUnfit, OSError))
        log.warning(
            "%s; updates are answered with 503, and Telegram keeps them",
            f"Redis: {complaint(error)}" if is_foreseen else "an append failed",
            exc_info=None if is_foreseen else error,
        )


@dataclass
class PendingAppend:
    updates: list[Any]
    answer: asyncio.Future[Appended]

    def finish(self, appended: Appended | None, error: Exception | None) -> None:
        """From the thread to the loop, unless that has ended."""
        with suppress(RuntimeError):  # it is closed
            self.answer.get_loop().call_soon_threadsafe(self._set, appended, error)

    def _set(self, appended: Appended | None, error: Exception | None) -> None:
        if self.answer.done():
            return
        if error:
            self.answer.set_exception(error)
        elif appended:
            self.answer.set_result(appended)
