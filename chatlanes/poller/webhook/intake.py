"""Appends the updates of one bot from its webhook to the lanes: filter, backlog limit, group commit and progress.

Guarantees that no update is accepted above MAX_PENDING, so that Telegram holds the rest. Connects to Redis on first
use, and again after an outage. One append runs at a time, and the updates that arrive meanwhile share the next one.
Each is answered within ANSWER_WITHIN_S: it is durable, or not known to be. One that is not may still be appended:
Telegram sends it again, and the append drops it as seen.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from redis.exceptions import RedisError

from celery_lanes.errors import ServerUnfit, complaint
from celery_lanes.protocol import Appended
from chatlanes.logs.ids import thread_of
from chatlanes.poller.bot_api import Telegram
from chatlanes.poller.factory import intake_of
from chatlanes.poller.filter import Filter
from chatlanes.poller.progress import Progress
from chatlanes.poller.runtime import SerialExecutor
from chatlanes.settings import Settings
from chatlanes.settings.bots import AddedBot
from chatlanes.updates.intake import AppendChannel, Intake

log = logging.getLogger("poller")

#: For each answer of Redis: it leaves time to answer the update.
REDIS_ANSWERS_WITHIN_S = 4.0
#: With the username of the bot, while updates wait: it is asked for once, at the first command that names a bot.
TELEGRAM_ANSWERS_WITHIN_S = 2.0
#: While the backlog is too large it is read again after this time.
READ_EVERY_S = 0.5
#: Under constant overload the backlog crosses its limit every other second. This bounds the log lines.
LOG_EVERY_S = 30.0
#: Telegram waits about a minute for an answer, and sends nothing of the chat meanwhile.
ANSWER_WITHIN_S = 4.0
#: A larger script would delay the fetches of workers.
MOST_IN_ONE = 500
#: Telegram sends at most 100 concurrent requests. More waiting ones have another cause, and cost memory.
MOST_WAITING = 2_000

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
    """The appends of one bot, on one event loop. `on_appended` is called there after every successful append."""

    append: Append
    on_appended: Callable[[Appended], None]
    #: The name of the thread that waits for Redis.
    name: str = "appends"
    #: The thread of several bots. None: one of its own.
    shared: SerialExecutor | None = None

    _waiting: list[PendingUpdate] = field(default_factory=list, init=False)
    _committing: list[PendingUpdate] = field(default_factory=list, init=False)
    _working: asyncio.Task[None] | None = field(default=None, init=False)
    _due: asyncio.TimerHandle | None = field(default=None, init=False)
    _thread: SerialExecutor = field(init=False)
    _logged_at_s: float = field(default=float("-inf"), init=False)
    _trouble: str = field(default="", init=False)

    def __post_init__(self) -> None:
        # Its thread is a daemon, so that a Redis that does not answer cannot delay the exit.
        self._thread = self.shared or SerialExecutor(self.name)

    async def add(self, update: Any) -> None:
        """Returns when Redis holds the update durably. Raises NotDurableError."""
        if len(self._waiting) >= MOST_WAITING:
            raise NotDurableError("too many updates wait for Redis")
        waiting = PendingUpdate(update, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self.start()
        try:
            await asyncio.wait_for(waiting.done, ANSWER_WITHIN_S)
        except TimeoutError:
            raise NotDurableError(f"Redis did not store it within {ANSWER_WITHIN_S:g} s") from None

    def give_up(self) -> None:
        """Ends all waits for Redis, because the receiver stops."""
        for each in (*self._committing, *self._waiting):
            if not each.done.done():
                each.done.set_exception(NotDurableError("the receiver stops"))

    def start(self) -> None:
        """Starts an append unless one runs, even an empty one: it lets held updates that are due join their lanes."""
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
        """The oldest updates whose requests still wait."""
        waiting = [each for each in self._waiting if not each.done.done()]
        self._committing, self._waiting = waiting[:MOST_IN_ONE], waiting[MOST_IN_ONE:]
        return self._committing

    async def _commit(self, batch: list[PendingUpdate]) -> None:
        updates = [each.update for each in batch]
        try:
            appended = await asyncio.wrap_future(self._thread.submit(partial(self._append_logged, updates)))
        except Exception as error:  # after any error Telegram keeps the updates
            problem: Exception | None = NotDurableError(str(error))
        else:
            # If the process dies here, no request is answered: Telegram sends all updates again, and append drops them.
            self._start_when_due(appended.due_ms)
            self.on_appended(appended)
            problem = None
        for each in batch:
            if not each.done.done():
                each.done.set_exception(problem) if problem else each.done.set_result(None)

    def _start_when_due(self, due_ms: int | None) -> None:
        """Starts an append when held updates are due, whichever process appended them. If this process dies before, the
        next append of another process or the sweep of a worker does it.
        """
        if self._due:
            self._due.cancel()
        self._due = None if due_ms is None else asyncio.get_running_loop().call_later(due_ms / 1000, self.start)

    def _append_logged(self, updates: list[Any]) -> Appended:
        """Runs on the thread that waits for Redis, whose name is in its log lines."""
        try:
            appended = self.append(updates)
        except Exception as error:
            self._failed(error)
            raise
        self._worked()
        return appended

    def _worked(self) -> None:
        if self._trouble:
            log.info("Redis: works again")
            self._trouble = ""

    def _failed(self, error: Exception) -> None:
        now_s, trouble = time.monotonic(), f"{type(error).__name__}: {error}"
        if trouble == self._trouble and now_s - self._logged_at_s < LOG_EVERY_S:
            return
        self._trouble, self._logged_at_s = trouble, now_s
        is_expected = isinstance(error, (RedisError, ServerUnfit, OSError))
        log.warning(
            "%s; updates are answered with 503, and Telegram keeps them",
            f"Redis: {complaint(error)}" if is_expected else "an append failed",
            exc_info=None if is_expected else error,
        )


class SharedAppends:
    """A thread and a connection to Redis for the appends of several bots. The connection is made on first use."""

    def __init__(self, settings: Settings) -> None:
        self.thread = SerialExecutor("appends")
        self._settings = settings
        self._channel: AppendChannel | None = None

    def channel(self) -> AppendChannel:
        """Runs on the thread. Raises RedisError, ServerUnfit."""
        self._channel = self._channel or AppendChannel(self._settings, REDIS_ANSWERS_WITHIN_S)
        return self._channel


class HookIntake:
    """The intake of one bot, in one process. Everything except `_append` runs on the event loop."""

    def __init__(self, settings: Settings, shared: SharedAppends | None = None) -> None:
        self._settings = settings
        self._shared = shared
        self._filtering = Filter(settings)
        self._intake: Intake | None = None
        self.commits = GroupCommit(
            self._append,
            self._appended,
            thread_of(settings.bot_name) if settings.bot_name else "appends",
            shared.thread if shared else None,
        )
        self._pending = 0
        self._read_at_s = float("-inf")
        self._logged_at_s = float("-inf")
        self.progress = Progress()

    def has_room(self) -> bool:
        """True if one more update may be accepted. Reads the backlog again if it was read some time ago."""
        if self._pending <= self._settings.max_pending:
            return True
        now_s = time.monotonic()
        self._log_limit(now_s)
        if now_s - self._read_at_s >= READ_EVERY_S:
            self._read_at_s = now_s
            self.commits.start()
        return False

    def _log_limit(self, now_s: float) -> None:
        if now_s - self._logged_at_s >= LOG_EVERY_S:
            self._logged_at_s = now_s
            limit = self._settings.max_pending
            log.warning("backlog %d is over MAX_PENDING %d: updates are answered with 503", self._pending, limit)

    def _append(self, updates: list[Any]) -> Appended:
        """Runs on the thread of the commits, one at a time. Raises RedisError, ServerUnfit."""
        if self._intake is None:
            self._intake = self._made()
        wanted = self._filtering.admitted(updates)
        kept = set(map(id, wanted))
        dropped = [update for update in updates if id(update) not in kept]
        appended = self._intake.append(wanted, hold_ms=self._settings.webhook_reorder, unwanted=dropped)
        if not wanted:  # an append returns the backlog only of the queues to which it appended
            appended = replace(appended, pending=self._intake.pending())
        if updates:
            self.progress.count(updates, len(dropped), appended)
        return appended

    def _made(self) -> Intake:
        """Raises RedisError, ServerUnfit."""
        settings = self._settings
        if self._shared and isinstance(settings, AddedBot):
            return Intake(self._shared.channel(), settings, settings.own_name)
        telegram = Telegram(settings.bot_api_url, settings.token, answer_within_s=TELEGRAM_ANSWERS_WITHIN_S)
        return intake_of(settings, REDIS_ANSWERS_WITHIN_S, telegram)

    def _appended(self, appended: Appended) -> None:
        self._pending = appended.pending
