"""Fires the schedules of the bots: every worker's main process watches all of them, on a thread.

Guarantees that each occurrence is fired once, however many workers watch: one step in Redis records it and appends its
message, and only Redis' clock counts. While Redis is away nothing is fired; the occurrences of that time are missed
ones, as those of a time without workers.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from threading import Event, Thread
from typing import NamedTuple

import orjson
from celery.utils.log import get_task_logger
from redis.exceptions import RedisError

from celery_lanes.protocol import NewMessage, Store
from chatlanes.bot.schedules import KIND, Due, Schedule, ScheduleRecord, content_of, due, owner_of, session_key
from chatlanes.settings import Settings
from chatlanes.tasks.bots import ServedBot
from chatlanes.updates import queue_of
from chatlanes.updates.connection import connect_to
from chatlanes.updates.intake import pack_update

logger = get_task_logger(__name__)

#: The longest pause between two looks at Redis' clock, which may be set.
LONGEST_PAUSE_MS = 60_000
#: Of many workers that wait for one occurrence, each looks at another moment of this period: the first one fires it.
SPREAD_S = 0.05
ANSWER_WITHIN_S = 5.0
#: A restart of all workers is over by then.
FORGET_AFTER_MS = 24 * 3_600_000
#: The pause after Redis did not answer.
AGAIN_AFTER_S = 1.0


class _WatchedSchedule(NamedTuple):
    settings: Settings
    schedule: Schedule

    @property
    def place(self) -> tuple[str, str]:
        """The owner and the name of its record in Redis."""
        return owner_of(self.settings.bot_id), self.schedule.name


class _Firing(NamedTuple):
    watched: _WatchedSchedule
    known: bytes
    record: ScheduleRecord
    due: Due


class Watcher:
    """Watches the schedules of these bots, from `start` to `stop`."""

    def __init__(self, served: Iterable[ServedBot], store: Store) -> None:
        self._watched = [_WatchedSchedule(bot.settings, each) for bot in served for each in bot.schedules.values()]
        self._store = store
        self._is_new = True
        self._is_redis_down = False
        self._is_over = Event()

    def start(self) -> None:
        """Call it after the pool has forked."""
        if self._watched:
            Thread(target=self._run, name="schedules", daemon=True).start()

    def stop(self) -> None:
        self._is_over.set()

    def _run(self) -> None:
        pause_s = 0.0
        while not self._is_over.wait(pause_s):
            try:
                pause_s = self.look()
                if self._is_redis_down:
                    logger.info("schedules: Redis answers again")
                self._is_redis_down = False
            except (RedisError, OSError) as error:
                if not self._is_redis_down:
                    logger.error("schedules: Redis does not answer: %s. Trying again.", error)
                self._is_redis_down = True
                pause_s = AGAIN_AFTER_S
            except Exception:  # if this thread died, the schedules would stop and the worker would not
                logger.exception("schedules: an error in chatlanes; the thread continues")
                pause_s = LONGEST_PAUSE_MS / 1000

    def look(self) -> float:
        """Fire the schedules that are due; returns the time until the next look, in seconds. Raises RedisError."""
        now_ms, stored = self._store.schedules()
        if self._is_new:
            self._remove_former(stored, now_ms)
        firings, next_ms = [], [now_ms + LONGEST_PAUSE_MS]
        for watched in self._watched:
            known = stored.get(watched.place, b"")
            record = self._record_of(watched, known, now_ms)
            if record is None:
                continue
            if found := due(record, watched.schedule.missed, now_ms):
                firings.append(_Firing(watched, known, record, found))
            next_ms += filter(None, [watched.schedule.clockwork.next(max(now_ms, record.after_ms))])
        for firing in sorted(firings, key=lambda firing: firing.due.until_ms):
            self._fire(firing)
        self._is_new = False
        return (min(next_ms) - now_ms) / 1000 + random.uniform(0, SPREAD_S)  # noqa: S311 - not for cryptography

    def _record_of(self, watched: _WatchedSchedule, known: bytes, now_ms: int) -> ScheduleRecord | None:
        """Its record. A schedule that is new, or had another definition when this worker started, begins now.

        None: a worker that started later has removed it, or has given it another definition and fires it.
        """
        record = _readable(watched.schedule.name, known) if known else None
        if record is not None and record.clockwork == watched.schedule.clockwork:
            return record
        if record is not None and not self._is_new:
            return None
        begun = ScheduleRecord(*watched.schedule.clockwork, after_ms=now_ms)
        owner, name = watched.place
        self._store.advance(owner, name, known=known, record=begun.encode())
        return begun

    def _remove_former(self, stored: dict[tuple[str, str], bytes], now_ms: int) -> None:
        """Remove what this bot no longer has, so that it begins anew if it comes back. For a day a record says so:
        workers that started earlier, and still have it, do not fire it any more.
        """
        owners, places = {each.place[0] for each in self._watched}, {each.place for each in self._watched}
        for (owner, name), known in stored.items():
            if owner not in owners or (owner, name) in places:
                continue
            record = _readable(name, known)
            if record is None or not record.is_removed:
                self._store.advance(owner, name, known=known, record=ScheduleRecord.removed(now_ms).encode())
            elif record.after_ms < now_ms - FORGET_AFTER_MS:
                self._store.advance(owner, name, known=known, record=b"")

    def _fire(self, firing: _Firing) -> None:
        watched, found = firing.watched, firing.due
        owner, name = watched.place
        is_first = self._store.advance(
            owner,
            name,
            known=firing.known,
            record=firing.record.advanced(found).encode(),
            until_ms=found.until_ms,
            messages=list(_messages(watched, found)),
        )
        if is_first and not found.fires:
            logger.info("schedule %s: no worker was there at its last time, which is skipped (missed='skip')", name)


def watcher(served: Iterable[ServedBot], settings: Settings) -> Watcher:
    return Watcher(served, Store(connect_to(settings, ANSWER_WITHIN_S)))


def _readable(name: str, stored: bytes) -> ScheduleRecord | None:
    try:
        return ScheduleRecord.decode(stored)
    except (ValueError, TypeError):
        logger.warning("schedule %s: its record in Redis cannot be read, and is made again: it begins now", name)
        return None


def _messages(watched: _WatchedSchedule, found: Due) -> Iterator[NewMessage]:
    settings, name = watched.settings, watched.schedule.name
    for due_ms in found.fires:
        content = content_of(name, watched.schedule.tz, due_ms)
        key = session_key(content)
        yield NewMessage(
            id=f"{settings.bot_id}:{KIND}:{due_ms}:{name}",
            queue=queue_of([key], 0, settings.queues, settings.queue_group),
            stored=pack_update(f"(schedule {name})", orjson.dumps(content)),
            lanes=[f"{settings.bot_id}/{key}"],
        )
