"""`send` and `sent`: append a call of the outbox, and read how it ended.

Guarantees that a call whose `send` has returned is as durable as an update, and that of all calls with one key (`once`)
to a chat, by any processes at any time, one is appended, until 48 hours after it has ended. If `send` raises a
RedisError, it is unknown whether the call was appended: the same key again gives one call.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from celery_lanes.errors import LeaseLost
from celery_lanes.protocol import DurableAppends, Guard, keys, plain
from chatlanes.outbox.call import KIND, OutboxCall, SendError, call_of, settings_for
from chatlanes.outbox.results import KEPT_S, SENDING, SENT, State
from chatlanes.settings import Settings, load
from chatlanes.telegram import BotApiError, errors
from chatlanes.updates.connection import connect_to
from chatlanes.updates.intake import TIMEOUT_S
from chatlanes.updates.words import WORDS

NEW, APPENDED = "new", "appended"
#: Each attempt but the last one was overtaken by another sender with this key, or by the end of the call.
_MOST_ATTEMPTS = 5


class OutboxFullError(SendError):
    """The backlog of the bot has reached MAX_PENDING. The call may be sent later."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A call of the outbox at one moment.

    Attributes:
        id: What `send` returned.
        state: `waiting`, `sent`, `refused`, `uncertain`, `buried` or `unknown`.
        result: What Telegram returned, as JSON. None unless `sent`.
        error: If `refused`, the class of `chatlanes.errors` that says why.
        why: A sentence, if it is not `sent`: the refusal, or why the last attempt failed.
        ended_ms: When it ended, in ms since 1970. 0 if it has not ended.
    """

    id: str
    state: str
    result: Any = None
    error: BotApiError | None = None
    why: str = ""
    ended_ms: int = 0


def send(chat_id: int, method: str, *, once: str | None = None, bot: str | None = None, **params: Any) -> str:
    """Send one Bot API call to a chat, in its lane, from any process that has REDIS_URL and the bot's token.

    Returns when Redis holds the call durably; a worker makes it. Blocks meanwhile: in a coroutine, write
    `await asyncio.to_thread(chatlanes.send, …)`.

    Args:
        chat_id: The number of the chat. It is also the parameter `chat_id` of the method, if that has one.
        method: The method, such as `sendMessage`.
        once: A key. The same key for the same chat again returns the same id, and sends nothing.
        bot: The name of the bot in the file BOTS, if there are several.
        params: The parameters of the method. Files are URLs or file_ids.

    Returns:
        The id of the call, for `sent`.

    Raises:
        SendError: The call cannot be sent as it is; the message says what to do.
        OutboxFullError: The backlog has reached MAX_PENDING.
        SettingsError: A setting of this process is wrong.
        celery_lanes.ServerUnfit: The server does not support lanes.
        redis.exceptions.RedisError: Redis does not answer. It is unknown whether the call was stored.
    """
    here = outbox()
    call = call_of(settings_for(bot, here.settings), chat_id, method, once, params)
    here.append(call)
    return call.id


def sent(id: str) -> Sent:  # noqa: A002  the word of `send`
    """How a call of the outbox has ended, or that it waits. Kept for 48 hours after the end.

    Raises:
        SendError: This is not an id that `send` returned.
        redis.exceptions.RedisError: Redis does not answer.
    """
    return outbox().sent(id)


@cache
def outbox() -> Outbox:
    """The outbox of this process. Raises SettingsError."""
    return Outbox(load())


class Outbox:
    """Any thread, greenlet or forked child may use it: a connection has one user at a time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._idle: deque[DurableAppends] = deque()  # as in Store: no lock, which could be held at a fork
        self._pid = os.getpid()

    def append(self, call: OutboxCall) -> None:
        """Append the call, unless one of this id was. Raises OutboxFullError, RedisError and ServerUnfit.

        If the process dies after the guard is stored and before the append, the next `send` with the same key appends.
        The commit of the call deletes the guard and stores the result, so a sender that has read neither of them before
        is refused.
        """
        guard = Guard(SENDING + call.id, NEW, {"fence": APPENDED})
        with self._connection() as appends:
            for _ in range(_MOST_ATTEMPTS):
                state = self._look(appends, call)
                if state is State.SENT:
                    return
                if state is State.WAITING:
                    appends.write(plain("EXPIRE", guard.key, KEPT_S))  # another sender may still wait for the disk
                    return
                try:
                    appends.append([call.message], guard)
                except LeaseLost:
                    continue
                return
        raise RedisConnectionError(f"call {call.id} was not appended: its key in Redis changes again and again")

    def sent(self, id_: str) -> Sent:
        """Raises SendError and RedisError."""
        with self._connection() as appends:
            return find(appends.store.client, id_)

    def _look(self, appends: DurableAppends, call: OutboxCall) -> State:
        """UNKNOWN: it is to be appended, by a sender whose guard is NEW. In this order: a guard that the end of the
        call has deleted since the first command is not there at the last one.
        """
        guard = SENDING + call.id
        _, _, is_over, fence, pending = appends.store.run_all(
            plain("HSETNX", guard, "fence", NEW),
            plain("EXPIRE", guard, KEPT_S),
            plain("EXISTS", SENT + call.id),
            plain("HGET", guard, "fence"),
            plain("ZCARD", keys.pending(call.group)),
        )
        if is_over:
            return State.SENT
        if fence == APPENDED.encode():
            return State.WAITING
        if pending >= call.max_pending:
            raise OutboxFullError(
                f"the backlog of the bot has reached MAX_PENDING ({call.max_pending:,}): send the call later, and to "
                "many chats use a broadcast"
            )
        return State.UNKNOWN

    @contextmanager
    def _connection(self) -> Iterator[DurableAppends]:
        """One that is used no more after an error. Raises ServerUnfit and RedisError."""
        if self._pid != (pid := os.getpid()):  # a forked child must not share its parent's sockets
            self._pid, self._idle = pid, deque()
        try:
            appends = self._idle.pop()
        except IndexError:
            settings = self.settings
            appends = DurableAppends(connect_to(settings, TIMEOUT_S), settings.durable_replicas, WORDS)
        try:
            yield appends
        except SendError:
            self._idle.append(appends)
            raise
        except BaseException:
            appends.store.client.close()
            raise
        self._idle.append(appends)


def find(client: Redis, id_: str) -> Sent:
    """Read in one step, because a call that ends leaves one place and enters the other. Raises the same as `sent`."""
    if not isinstance(id_, str) or id_.split(":")[1:2] != [KIND]:
        raise SendError(f"{id_!r:.80} is not the id of a call of the outbox: use what chatlanes.send returned")
    with client.pipeline() as pipe:
        pipe.get(SENT + id_)
        pipe.hget(keys.message(id_), "state")
        pipe.lindex(keys.errors(id_), -1)
        stored, state, problem = pipe.execute()
    if stored is not None:
        record = json.loads(stored)
        error = record["error"] and errors.restored(record["error"])
        return Sent(id_, record["state"], record["result"], error, record["why"], record["ended_ms"])
    if state is None:
        return Sent(id_, State.UNKNOWN.value)
    now = State.BURIED if state == b"buried" else State.WAITING
    return Sent(id_, now.value, why=_why(problem))


def _why(problem: bytes | None) -> str:
    found = json.loads(problem) if problem else {}
    return f"{found.get('type', '')}: {found.get('message', '')}" if found else ""
