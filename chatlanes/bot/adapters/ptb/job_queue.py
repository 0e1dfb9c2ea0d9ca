"""python-telegram-bot's JobQueue without APScheduler: its jobs are timers in Redis (job_storage.py).

A handler's jobs are set in the step that settles its update. Jobs that a bot sets while it starts, which each process
does, are set once: a job of the same name, callback, chat and user stays as it is, unless it is set with another
interval, time of day or data.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import cached_property
from time import monotonic
from typing import Any, NamedTuple, NoReturn
from uuid import uuid4

from telegram.ext import ExtBot, Job, JobQueue

from celery_lanes.protocol.keys import SEEN_TTL_S
from chatlanes.bot.adapters import storage_json
from chatlanes.bot.adapters.ptb import job_plans as plans
from chatlanes.bot.adapters.ptb.data import AnyApplication
from chatlanes.bot.adapters.ptb.job_plans import JobError, When
from chatlanes.bot.adapters.ptb.job_storage import Found, JobRecord, JobStorage, origin_of, record_of
from chatlanes.bot.context import current_or_none
from chatlanes.bot.timers import MOST_BYTES, time_of

log = logging.getLogger(__name__)

#: Identifies a start of this worker: its processes inherit it, and set a job that runs once only once.
_START, _STARTED_S = uuid4().hex, monotonic()
#: Redis remembers for longer which jobs a start has set. A process that starts later does not set them again.
_START_LASTS_S = SEEN_TTL_S - 3600
#: Options of APScheduler that have no effect here: a late job runs once, and two runs of a job never overlap.
_WITHOUT_EFFECT = frozenset({"misfire_grace_time", "coalesce", "max_instances"})
_EVERY_DAY = tuple(range(7))


class Wanted(NamedTuple):
    """A job that the start of the bot sets, and when it runs first."""

    record: JobRecord
    at_ms: int | None
    in_ms: int


class LaneJob(Job[Any]):
    """A job. Its data is decoded when it is used."""

    def __init__(self, queue: LaneJobQueue, record: JobRecord, next_ms: int | None) -> None:
        self._queue, self.record, self._next_ms = queue, record, next_ms
        self.name, self.chat_id, self.user_id = record.name, record.chat_id, record.user_id
        self._removed = False
        self._job: Any = _NoScheduler("job")

    @property
    def id(self) -> str:
        return self.record.id

    @cached_property
    def callback(self) -> Any:  # type: ignore[override]
        """Raises LookupError if the function does not exist."""
        return callback_at(self.record.callback)

    @cached_property
    def data(self) -> Any:  # type: ignore[override]
        return storage_json.value(self.record.data)

    @property
    def next_t(self) -> datetime | None:
        return None if self._removed or self._next_ms is None else time_of(self._next_ms)

    @property
    def enabled(self) -> bool:
        return not self._removed

    @enabled.setter
    def enabled(self, status: bool) -> None:
        if not status:
            raise JobError("a job cannot be disabled here: remove it with schedule_removal(), and set it again later")

    def schedule_removal(self) -> None:
        self._queue.remove(self.record)
        self._removed = True

    def __repr__(self) -> str:
        return f"Job[id={self.id}, name={self.name}, callback={self.record.callback}]"


class LaneJobQueue(JobQueue[Any]):
    """The job queue of one application."""

    scheduler: Any

    def __init__(self, application: AnyApplication) -> None:
        self._bot = application.bot
        self._app = application
        self.storage = JobStorage(application.bot.token)
        self.scheduler = _NoScheduler("scheduler")
        #: The jobs of the bot's import, and of its start. None: the bot has started.
        self._wanted: list[Wanted] | None = []
        self._of_import: list[Wanted] | None = None

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"the job queue has no {name} here, because APScheduler does not run the jobs")

    @property
    def application(self) -> Any:
        return self._app

    def set_application(self, application: Any) -> None:
        self._app = application

    async def start(self) -> None: ...

    async def stop(self, wait: bool = True) -> None: ...

    def run_once(self, callback: Any, when: When, *more: Any, **named: Any) -> LaneJob:
        record = self._record(None, callback, *more, **named)
        if isinstance(when, int | float | timedelta):
            return self._set(record, None, max(round(plans.seconds(when) * 1000), 0))
        return self._set(record, plans.ms_of(plans.moment(when, self._zone, self._now(), is_next=True)))

    def run_repeating(
        self,
        callback: Any,
        interval: float | timedelta,
        first: When | None = None,
        last: When | None = None,
        *more: Any,
        **named: Any,
    ) -> LaneJob:
        plan = plans.interval(interval, first, last, self._zone, self._now())
        return self._repeat(plan, callback, *more, **named)

    def run_daily(
        self, callback: Any, time: time, days: tuple[int, ...] = _EVERY_DAY, *more: Any, **named: Any
    ) -> LaneJob:
        return self._repeat(plans.daily(time, days, self._zone), callback, *more, **named)

    def run_monthly(self, callback: Any, when: time, day: int, *more: Any, **named: Any) -> LaneJob:
        return self._repeat(plans.monthly(when, day, self._zone), callback, *more, **named)

    def run_custom(self, *_: Any, **__: Any) -> NoReturn:
        raise JobError("run_custom needs APScheduler: use run_once, run_repeating, run_daily or run_monthly")

    def jobs(self, pattern: str | re.Pattern[str] | None = None) -> tuple[LaneJob, ...]:
        found = self._jobs(self.storage.all(), lambda record: True)
        return found if pattern is None else tuple(job for job in found if re.compile(pattern).search(job.record.name))

    def get_jobs_by_name(self, name: str) -> tuple[LaneJob, ...]:
        found = self.storage.named(name) if isinstance(name, str) else []
        return self._jobs(found, lambda record: record.name == name)

    def remove(self, record: JobRecord) -> None:
        wanted = [each for each in self._wanted or () if each.record.id == record.id]
        if wanted and self._wanted and current_or_none() is None:
            self._wanted.remove(wanted[0])
        else:
            self.storage.remove(record)

    def begin_start(self) -> None:
        """The bot starts in this process; if an earlier start failed, its jobs are set again."""
        if self._of_import is None:
            self._of_import = self._wanted
        self._wanted = list(self._of_import or ())

    def end_start(self) -> None:
        """Set the jobs of the start. Raises RedisError."""
        once, is_replacement = Counter[tuple[Any, ...]](), monotonic() - _STARTED_S > _START_LASTS_S
        for place, (record, at_ms, in_ms) in enumerate(self._wanted or ()):
            if record.plan is not None:
                self.storage.ensure_repeating(record, record.plan)
            elif not is_replacement:
                self.storage.ensure_once(record, once[record.identity], at_ms, in_ms, (f"jobs:{_START}", place))
                once[record.identity] += 1
        self._wanted = None

    def begin(self, job: dict[str, Any]) -> LaneJob | None:
        """A job whose run begins, from the content of its timer; None if it was removed."""
        record = record_of(job)
        if not record.callback:
            continued = self.storage.continue_(record)
            if continued is None:
                log.info("job %r was removed and does not run", record.name)
            return continued and LaneJob(self, *continued)
        return LaneJob(self, record, None) if record.plan is None else None  # the record of a job that is over

    def end(self, job: LaneJob) -> None:
        """After a successful run of a job: the last one ends it, and others may have changed its data."""
        record = job.record
        if record.plan is None:
            return
        if job.next_t is None:
            self.storage.remove(record)
        elif (data := storage_json.text(job.data, "job.data")) != record.data and self.storage.exists(record):
            self.storage.write(replace(record, data=data))

    def _repeat(self, plan: plans.Plan, callback: Any, *more: Any, **named: Any) -> LaneJob:
        record = self._record(plan, callback, *more, **named)
        next_ms = plan.next_ms(plans.ms_of(self._now()))
        if next_ms is not None:
            return self._set(record, next_ms)
        return LaneJob(self, record, None)  # its last time has passed

    def _set(self, record: JobRecord, at_ms: int | None, in_ms: int = 0) -> LaneJob:
        if self._wanted is None or current_or_none() is not None:
            self.storage.set(record, at_ms, in_ms)
        else:
            number = sum(each.record.identity == record.identity for each in self._wanted)
            id_ = f"start:{record.callback}:{record.chat_id}:{record.user_id}:{number}"  # the same in each process
            record = replace(record, id=id_, origin=origin_of(record.plan, record.data))
            self._wanted.append(Wanted(record, at_ms, in_ms))
        return LaneJob(self, record, plans.ms_of(self._now()) + in_ms if at_ms is None else at_ms)

    def _record(
        self,
        plan: plans.Plan | None,
        callback: Any,
        data: object = None,
        name: str | None = None,
        chat_id: int | None = None,
        user_id: int | None = None,
        job_kwargs: dict[str, Any] | None = None,
    ) -> JobRecord:
        """The arguments are those that all methods of python-telegram-bot have. Raises JobError."""
        if unknown := set(job_kwargs or ()) - _WITHOUT_EFFECT:
            raise JobError(
                f"job_kwargs: {min(unknown)!r} is an option of APScheduler, which does not run the jobs here"
            )
        path, name = path_of(callback), name or callback.__name__
        if not isinstance(name, str) or not all(isinstance(each, int | None) for each in (chat_id, user_id)):
            raise JobError(f"{name=}, {chat_id=}, {user_id=}: use a text as the name, and numbers as the ids")
        try:
            text = storage_json.text(data, "data")
        except TypeError as error:
            raise JobError(f"job {name!r} cannot be stored: {error}") from error
        if len(text) > MOST_BYTES:
            raise JobError(
                f"job {name!r} cannot be stored: its data has {len(text):,} bytes, and at most {MOST_BYTES:,} are "
                "allowed. Store the data elsewhere, and its key in the job"
            )
        return JobRecord(uuid4().hex[:16], name, path, text, chat_id, user_id, plan)

    def _jobs(self, stored: list[Found], is_asked: Callable[[JobRecord], bool]) -> tuple[LaneJob, ...]:
        """The stored jobs, and those that the start of the bot is about to set."""
        found = {each.record.id: LaneJob(self, *each) for each in stored}
        if current_or_none() is None:
            for record, at_ms, in_ms in self._wanted or ():
                if is_asked(record):
                    due_ms = plans.ms_of(self._now()) + in_ms if at_ms is None else at_ms
                    found.setdefault(record.id, LaneJob(self, record, due_ms))
        return tuple(found.values())

    @property
    def _zone(self) -> tzinfo:
        defaults = self._bot.defaults if isinstance(self._bot, ExtBot) else None
        return (defaults.tzinfo if defaults else None) or UTC

    def _now(self) -> datetime:
        return datetime.now(self._zone)


def queue_of(application: AnyApplication) -> LaneJobQueue:
    """The job queue of an application, which replaces its own."""
    own = application._job_queue
    if isinstance(own, LaneJobQueue):
        return own
    if own and own.jobs():
        log.warning("%d jobs will not run: set them with application.job_queue, not with a JobQueue", len(own.jobs()))
    application._job_queue = queue = LaneJobQueue(application)
    return queue


class _NoScheduler:
    """Replaces the scheduler of APScheduler, and its jobs."""

    #: A ConversationHandler that is added later does not set its timeouts.
    running = False

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise JobError(f"{self._what}.{name}: APScheduler does not run the jobs here; use the methods of the job queue")


def path_of(callback: Any) -> str:
    """`module:name` of a function. Raises JobError."""
    module, name = getattr(callback, "__module__", None), getattr(callback, "__qualname__", None)
    if not (inspect.isfunction(callback) and module and storage_json.found_at(f"{module}:{name}") is callback):
        raise JobError(
            f"{name or type(callback).__name__} cannot be the callback of a job: another process must find it by its "
            "name. Write a function `async def name(context)` in a module, and give it what it needs as `data`"
        )
    return f"{module}:{name}"


def callback_at(path: str) -> Any:
    """The function at `module:name`. Raises LookupError."""
    found = storage_json.found_at(path)
    if not inspect.isfunction(found):
        raise LookupError(f"the callback of the job, {path}, does not exist in this release of the bot")
    return found
