"""The intake: appends a batch of updates to their lanes, in one durable step.

When `append` returns, Redis holds the whole batch, each update once, with the `durability` of the server. When it
raises, the outcome is unknown; the batch may be appended again, and updates that Redis has already seen are dropped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any

import orjson
from redis import Redis

from celery_lanes.errors import PublishRefused
from celery_lanes.protocol import (
    Appended,
    Durability,
    DurableAppends,
    Guard,
    NewMessage,
    Rate,
    advice,
    check_lanes,
    only_seen,
    witness_of,
)
from celery_lanes.protocol.envelope import pack_task
from chatlanes import traces
from chatlanes.logs.ids import TRACE
from chatlanes.settings import Settings
from chatlanes.traces import NoBatch
from chatlanes.updates.collecting import grouping
from chatlanes.updates.connection import connect_to
from chatlanes.updates.parsing import CutUpdate, ParsedUpdate, parse
from chatlanes.updates.queues import left_behind
from chatlanes.updates.routing import (
    KeysError,
    check_order_by,
    controlling,
    is_express,
    is_urgent,
    keys_of,
    queue_of,
    unknown,
)
from chatlanes.updates.words import WORDS

RateOf = Callable[[dict[str, Any], ParsedUpdate], Rate | None]
#: The name of the task in chatlanes/tasks/update.py; importing that would build the Celery app.
TASK = WORDS.task
#: Celery's body: args, kwargs, and what may follow a task (celery.app.amqp.AMQP.as_task_v2).
BODY = b'[[%s],{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]'
#: For each reply of Redis. Longer than an append waits for the disk or for replicas.
TIMEOUT_S = 10.0
#: Larger numbers lose digits in Lua. Telegram's ids have 32 bits.
_MOST_ID = 2**53
#: Stored instead of content that cannot be stored.
_NOT_KEPT = b'"(nested too deeply)"'


class TooDeepError(Exception):
    """An update with about a thousand levels, which could not be decoded again."""


def lanes_of(bot_id: str | int, keys: list[str]) -> list[str]:
    """The lanes of these keys: one Redis may serve several bots. Raises KeysError if a message cannot have them."""
    lanes = [f"{bot_id}/{key}" for key in keys]
    try:
        check_lanes(lanes)
    except PublishRefused as refused:
        raise KeysError(str(refused)) from refused
    return lanes


class AppendChannel:
    """One connection to Redis that the intakes of many bots share: one append at a time."""

    def __init__(self, settings: Settings, timeout_s: float = TIMEOUT_S) -> None:
        """Raises ServerUnfit, RedisError."""
        client = connect_to(settings, timeout_s)
        self.appends = DurableAppends(client, settings.durable_replicas, WORDS)
        self.advice = [*advice(client, settings.durable_replicas, WORDS), *left_behind(client, settings)]
        self.lock = Lock()

    @property
    def durability(self) -> Durability:
        return self.appends.durability

    def close(self) -> None:
        self.appends.store.client.close()


def rating_of(settings: Settings) -> RateOf | None:
    """The function that gives an update its rate (rates.py); None without USER_RATE. Raises ImportPathError."""
    if settings.user_rate is None:
        return None
    from chatlanes.updates.rates import rating  # other bots do not import it

    return rating(settings, settings.user_rate)


class Intake:
    """Appends the updates of one bot."""

    def __init__(
        self, client: Redis | AppendChannel, settings: Settings, own_name: Callable[[], str | None] = unknown
    ) -> None:
        """`own_name`: the bot's username in lower case, None if it is not known.

        Raises ImportPathError for an invalid ORDER_BY, COLLECT, CONTROL or USER_RATE_BY, ServerUnfit for a server that
        does not support lanes, and RedisError when Redis does not answer.
        """
        check_order_by(settings.order_by)
        self._group_of = grouping(settings)
        self._stops = controlling(settings.control, own_name)
        self._rate_of = rating_of(settings)
        #: One sentence for each problem with the server's configuration or the queues, apart from durability.
        self.advice: list[str] = []
        self._one_at_a_time: AbstractContextManager[Any] = nullcontext()
        if isinstance(client, AppendChannel):
            self._appends, self._one_at_a_time = client.appends, client.lock
        else:
            self._appends = DurableAppends(client, settings.durable_replicas, WORDS)
            self.advice = [*advice(client, settings.durable_replicas, WORDS), *left_behind(client, settings)]
        self._store = self._appends.store
        self._witness = witness_of(settings.redis_url, WORDS)
        #: One Redis may serve several bots, whose update and chat ids may be equal.
        self._bot = str(settings.bot_id)
        self._order_by = settings.order_by
        self._queues = settings.queues
        self._queue_group = settings.queue_group
        self._express = settings.express_queue

    @classmethod
    def connect(
        cls, settings: Settings, timeout_s: float = TIMEOUT_S, own_name: Callable[[], str | None] = unknown
    ) -> Intake:
        return cls(connect_to(settings, timeout_s), settings, own_name)

    @property
    def durability(self) -> Durability:
        """The server's durability at the last check."""
        return self._appends.durability

    def recheck(self) -> None:
        """Check the server's settings again if the last check is old. Raises RedisError, ServerUnfit."""
        with self._one_at_a_time:
            self._appends.recheck()

    def append(
        self, updates: Sequence[Any], guard: Guard | None = None, *, hold_ms: int = 0, unwanted: Sequence[Any] = ()
    ) -> Appended:
        """Append a batch, in its order. Malformed updates are buried.

        With `hold_ms` the updates are ordered by id instead, across batches too: an update whose predecessor is missing
        is held for at most this long. Of the `unwanted` only the ids are recorded, so that no update is held for them.
        Raises RedisError; LeaseLost if the guard's fence is old, in which case nothing was appended;
        ServerUnfit if the connection now leads to a server that does not support lanes.
        """
        with traces.here().appending() as batch:
            rows = [self._message(update, batch) for update in updates]
            rows += [only_seen(self._bot, update["update_id"]) for update in unwanted]
            if hold_ms:
                rows.sort(key=lambda row: row.once[1] if row.once else -1)
            with self._one_at_a_time:
                known = self._witness.known
                appended = self._appends.append(rows, guard, hold_ms)
            self._witness.appended(self._store, known, appended)
            batch.appended(appended)
        return appended

    def pending(self) -> int:
        """The bot's backlog: updates that are neither settled nor buried. Raises RedisError."""
        with self._one_at_a_time:
            return self._store.pending(self._queue_group)

    def close(self) -> None:
        self._store.client.close()

    def _message(self, update: Any, batch: NoBatch) -> NewMessage:
        number = update.get("update_id") if isinstance(update, dict) else None
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < _MOST_ID:
            return self._malformed(update)
        problem, keys, lanes, group, body, parsed = None, [], [], None, _NOT_KEPT, parse(update)
        stops, rate = False, None
        try:
            body = _json(update)
            keys = keys_of(update, self._order_by, parsed)
            lanes = lanes_of(self._bot, keys)
            group = self._group_of(update, parsed) if self._group_of and lanes else None
            stops = self._stops is not None and self._stops(update, parsed)
            rate = self._rate_of(update, parsed) if self._rate_of and not stops else None
        except (KeysError, TooDeepError) as error:
            problem = {"type": type(error).__name__, "message": str(error)}
        if isinstance(update, CutUpdate):
            problem = {
                "type": "CutUpdate",
                "message": "it is nested too deeply, or holds a number with too many digits",
            }
        message_id, queue = f"{self._bot}:{number}", self._queue(parsed, keys, number)
        described = _describe(parsed, number)
        trace = batch.header(message_id, queue, described, problem["type"] if problem else "")
        return NewMessage(
            id=message_id,
            queue=queue,
            stored=pack_update(described, body, **({TRACE: trace} if trace else {})),
            lanes=lanes,
            once=(self._bot, number),
            problem=problem,
            group=None if problem else group,
            stops=stops,
            stoppable=not is_urgent(parsed),
            rate=None if problem else rate,
        )

    def _queue(self, parsed: ParsedUpdate, keys: list[str], number: int) -> str:
        return self._express if is_express(parsed) else queue_of(keys, number, self._queues, self._queue_group)

    def _malformed(self, update: Any) -> NewMessage:
        try:
            raw = _json(update)
        except TooDeepError:
            raw = _NOT_KEPT
        return NewMessage(
            id=f"{self._bot}:malformed:{hashlib.sha256(raw).hexdigest()[:16]}",
            queue=queue_of([], 0, self._queues, self._queue_group),
            stored=pack_update("(malformed)", raw),
            lanes=[],
            problem={"type": "MalformedUpdate", "message": "it has no numeric update_id"},
        )


def pack_update(described: str, content: bytes, **headers: str) -> bytes:
    """The stored form of a message that runs the bot on this content, which is JSON."""
    return pack_task(TASK, described, BODY % content, **headers)


def _describe(parsed: ParsedUpdate, number: int) -> str:
    """The description of an update in Flower and the worker's log. It never holds the update's text."""
    return f"({parsed.kind}, chat {parsed.home}, update {number})"


def _json(update: Any) -> bytes:
    """Raises TooDeepError."""
    try:
        return orjson.dumps(update)
    except TypeError:  # half a surrogate pair, a number beyond 64 bits, more than 254 levels
        pass  # json is slower and accepts these
    try:
        return json.dumps(update).encode()
    except RecursionError:
        raise TooDeepError("it is nested too deeply to be stored") from None
