"""The jobs of a bot in Redis: each is a timer, whose message runs the job in the lane of its chat.

A job that a handler sets or removes is set or removed in the step that settles its update, or not at all; elsewhere at
once. A repeating job has two timers: a record, which stays until the job is removed or over, and its next run. A run
whose job has no record any more does nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import orjson

from celery_lanes.monitoring import inspection
from celery_lanes.protocol import CancelTimer, NewMessage, SetTimer, Store, StoredTimer
from chatlanes.bot.adapters.ptb.job_plans import Plan, plan_from
from chatlanes.bot.context import current_or_none
from chatlanes.bot.stored import Stored
from chatlanes.bot.timers import described, id_prefix
from chatlanes.settings import Settings, load
from chatlanes.updates import keys_of, queue_of
from chatlanes.updates.connection import connect_to
from chatlanes.updates.intake import pack_update

T = TypeVar("T")

#: The kind of the updates that run jobs.
KIND = "job"
#: In one that ends a conversation: the name of the conversation.
TIMEOUT = "conversation"
#: The timers of an owner are one string. The jobs of one name, such as that of a callback, are spread over this many
#: owners, so that none is long.
SHARDS = 256
#: When the record of a job without an end is due: never. The last time that Python can show.
NEVER_MS = 253_402_300_799_000
#: The record of a job with an end stays for this long after it, in case the last run is late.
_AFTER_LAST_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as it is stored. `data` is text (storage_json). `plan`: None for a job that runs once. `origin`: of a job
    that the start of the bot sets, identifies how it is set; a job that is set differently replaces it.
    """

    id: str
    name: str
    callback: str
    data: str
    chat_id: int | None
    user_id: int | None
    plan: Plan | None = None
    origin: str = ""

    @property
    def next_name(self) -> str:
        """The name of the timer of the next run."""
        return self.id if self.plan is None else f"{self.id} next"

    @property
    def identity(self) -> tuple[Any, ...]:
        return self.name, self.callback, self.chat_id, self.user_id

    @property
    def update(self) -> dict[str, Any]:
        """The content of the record's timer."""
        plan = asdict(self.plan) if self.plan else None
        more = {"data": self.data, "plan": plan, "origin": self.origin or None}
        return self._update(callback=self.callback, **{name: value for name, value in more.items() if value})

    @property
    def next_update(self) -> dict[str, Any]:
        """The content of the timer of the next run."""
        return self.update if self.plan is None else self._update()

    def _update(self, **more: Any) -> dict[str, Any]:
        """An update that names chat and user where Telegram's updates do."""
        chat = {} if self.chat_id is None else {"chat": {"id": self.chat_id}}
        user = {} if self.user_id is None else {"from": {"id": self.user_id}}
        return {KIND: {"id": self.id, "name": self.name, **chat, **user, **more}}


class Found(NamedTuple):
    """A job, and when it runs next; None: unknown, because a run has not started yet."""

    record: JobRecord
    next_ms: int | None


def record_of(job: dict[str, Any]) -> JobRecord:
    """The record in the content of a timer. Without a callback: a record elsewhere has the rest."""
    return JobRecord(
        job["id"],
        job["name"],
        job.get("callback", ""),
        job.get("data", ""),
        job.get("chat", {}).get("id"),
        job.get("from", {}).get("id"),
        plan_from(job["plan"]) if "plan" in job else None,
        job.get("origin", ""),
    )


class JobStorage:
    """The jobs of one bot."""

    def __init__(self, token: str) -> None:
        self._bot_id = token.partition(":")[0]

    def set(self, record: JobRecord, at_ms: int | None, in_ms: int = 0) -> None:
        """Set a job that runs at a time, or if that is None in a time."""
        if record.plan is not None:
            self.write(record)
        self._set(record, record.next_name, record.next_update, at_ms, in_ms)

    def write(self, record: JobRecord) -> None:
        """Write the record of a repeating job."""
        last_ms = record.plan.last_ms if record.plan else None
        self._set(record, record.id, record.update, NEVER_MS if last_ms is None else last_ms + _AFTER_LAST_MS)

    def remove(self, record: JobRecord) -> None:
        owner, stored = self._owner(record), _stored_here()
        for name in {record.id, record.next_name}:
            if stored is None:
                self._store.cancel(owner, name)
            else:
                stored.stage_timer(CancelTimer(owner, name))

    def named(self, name: str) -> list[Found]:
        """The jobs of this name, the next one first."""
        return _found(self._timers(*(self._owner_of(name, shard) for shard in range(SHARDS))))

    def all(self) -> list[Found]:
        """All jobs of the bot, the next one first. Scans all timers."""
        stored = _stored_here() or self._store
        return _found(stored.timers(*stored.timer_owners(self._owner_of("", ""))))

    def find(self, record: JobRecord) -> list[Found]:
        """The jobs of the same name and chat."""
        return _found(self._timers(self._owner(record)))

    def exists(self, record: JobRecord) -> bool:
        """True if a repeating job was not removed."""
        return any(found.record.id == record.id for found in self.find(record))

    def continue_(self, place: JobRecord) -> tuple[JobRecord, int | None] | None:
        """The record of a repeating job whose run begins, and when it runs next, for which the timer is set. None if
        the job was removed.

        The timer is set at once: if this run fails, the job continues. If a run has set it already, nothing happens.
        """
        record = next((found.record for found in self.find(place) if found.record.id == place.id), None)
        if record is None or record.plan is None:
            return None
        next_ms = record.plan.next_ms(self.now_ms())
        if next_ms is not None:
            self._schedule(record, record.next_name, record.next_update, next_ms, replaces=False)
        return record, next_ms

    def ensure_once(self, record: JobRecord, number: int, at_ms: int | None, in_ms: int, once: tuple[str, int]) -> None:
        """Set a job of the bot's start that runs once, unless it is set or its time has passed.

        It is the `number`th such job of its name, callback, chat and user, as far as handlers may have set them before.
        `once` identifies it among the jobs of this worker's start.
        """
        here = [found.record for found in self.find(record)]
        waiting = sum(each.identity == record.identity and each.plan is None and not each.origin for each in here)
        is_past = at_ms is not None and at_ms <= self.now_ms()
        if waiting <= number and not is_past:
            self._schedule(record, record.id, record.update, at_ms, in_ms=in_ms, replaces=False, once=once)

    def ensure_repeating(self, record: JobRecord, plan: Plan) -> None:
        """Set a repeating job of the bot's start, unless it or one like it, which a handler has set, is set."""
        here = {found.record.id: found.record for found in self.find(record)}
        own = here.get(record.id)
        if own is None and any(_is_like(each, record) for each in here.values()):
            return
        is_same = own is not None and own.origin == record.origin
        if not is_same:
            self.write(record)
        # If the job is set, its next run is set too, unless a process has died between the two steps.
        lasting = own.plan if is_same and own and own.plan else plan
        if (next_ms := lasting.next_ms(self.now_ms())) is not None:
            self._schedule(record, record.next_name, record.next_update, next_ms, replaces=not is_same)

    def now_ms(self) -> int:
        """The time of Redis, the only clock of timers."""
        return self._ask(lambda store: inspection.now_us(store.client)) // 1000

    def _set(self, record: JobRecord, name: str, update: dict[str, Any], at_ms: int | None, in_ms: int = 0) -> None:
        stored = _stored_here()
        if stored is None:
            self._schedule(record, name, update, at_ms, in_ms=in_ms)
        else:
            message = self._message(record, update)
            owner, lanes = self._owner(record), message.lanes
            stored.stage_timer(SetTimer(owner, name, message.id, message.queue, message.stored, at_ms, in_ms, lanes))

    def _schedule(
        self,
        record: JobRecord,
        name: str,
        update: dict[str, Any],
        at_ms: int | None,
        *,
        in_ms: int = 0,
        replaces: bool = True,
        once: tuple[str, int] | None = None,
    ) -> None:
        """Set a timer at once."""
        message, owner = self._message(record, update, once), self._owner(record)
        self._ask(lambda store: store.schedule(message, owner, name, at_ms=at_ms, in_ms=in_ms, replaces=replaces))

    def _message(self, record: JobRecord, update: dict[str, Any], once: tuple[str, int] | None = None) -> NewMessage:
        """In the lanes and the queue of its chat or user. A job without both has a lane of its own."""
        settings, job = self._settings, update[KIND]
        keys = keys_of(record.next_update, settings.order_by) or [f"job:{plain(record.name)}"]
        lanes, queue = (
            [f"{self._bot_id}/{key}" for key in keys],
            queue_of(keys, 0, settings.queues, settings.queue_group),
        )
        shown = described(KIND, job.get("chat", job.get("from", {})).get("id"))
        packed = pack_update(shown, json.dumps(update, separators=(",", ":")).encode())
        if once is not None:
            once = f"{self._bot_id}/{once[0]}", once[1]
        return NewMessage(id_prefix(self._bot_id), queue, packed, lanes, once)

    def _timers(self, *owners: str) -> list[StoredTimer]:
        return (_stored_here() or self._store).timers(*owners)

    def _ask(self, step: Callable[[Store], T]) -> T:
        """The result of a step. In an update with a lane it may be done twice, as `Stored.ask`."""
        stored = _stored_here()
        return step(self._store) if stored is None else stored.ask(step)

    def _owner(self, record: JobRecord) -> str:
        return self._owner_of(record.name, crc32(f"{record.chat_id}/{record.user_id}".encode()) % SHARDS)

    def _owner_of(self, name: str, shard: int | str) -> str:
        return f"{self._bot_id}/jobs/{plain(name)}{'/' if name else ''}{shard}"

    @cached_property
    def _settings(self) -> Settings:
        found = load()
        return next((each for each in found.served if str(each.bot_id) == self._bot_id), found)

    @cached_property
    def _store(self) -> Store:
        """For code outside of updates."""
        return Store(connect_to(self._settings))


def _is_like(record: JobRecord, other: JobRecord) -> bool:
    """True if both have the same interval, or the same time of day and days."""
    kinds = {each.plan and each.plan.kind for each in (record, other)}
    return record.identity == other.identity and len(kinds) == 1


def origin_of(plan: Plan | None, data: str) -> str:
    """The `origin` of a job. It contains neither the first nor the last time, which usually differ in each process."""
    return hashlib.sha256(repr((plan and plan.kind, data)).encode()).hexdigest()[:16]


def _stored_here() -> Stored | None:
    """None outside of an update, or if it has no lane."""
    ctx = current_or_none()
    return None if ctx is None else ctx.stored


def _found(timers: Iterable[StoredTimer]) -> list[Found]:
    times = {(timer.owner, timer.name): timer.at_ms for timer in timers}
    found = []
    for timer in timers:
        record = record_of(orjson.loads(timer.stored.partition(b"\n")[2])[0][0][KIND])
        if record.callback:
            found.append(Found(record, times.get((timer.owner, record.next_name))))
    return sorted(found, key=lambda each: each.next_ms or 0)


def plain(name: str) -> str:
    """A name without control characters."""
    return name.encode("unicode_escape").decode()
