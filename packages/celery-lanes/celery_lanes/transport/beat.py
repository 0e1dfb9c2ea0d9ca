"""celery beat with lane queues: each firing of an entry is published once, however many beats run.

Guarantees that beats which fire an entry for the same time publish one message, as long as they do so within 48 h of
each other. The entry needs lane keys; a solar schedule and a schedule of your own are not compared.
"""

from __future__ import annotations

from copy import copy
from datetime import datetime, timedelta
from typing import Any

from celery.beat import PersistentScheduler, _evaluate_entry_args, _evaluate_entry_kwargs
from celery.schedules import crontab, schedule

from celery_lanes.protocol import envelope
from celery_lanes.transport.publish import key_headers

_DAY = timedelta(days=1)


class LanesScheduler(PersistentScheduler):
    """Celery's scheduler. Messages with lane keys have a `once`: the entry and the number of its firing."""

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **kwargs: Any) -> Any:
        number = firing(entry, self.reserve(entry) if advance else self.schedule.get(entry.name, entry))
        headers = entry.options.get("headers") or {}
        if number is not None and not headers.get(envelope.ONCE) and (keys := self._keys(entry)) is not None:
            entry = copy(entry)
            once = {**key_headers(keys), envelope.ONCE: [f"beat {entry.name}", number]}
            entry.options = {**entry.options, "headers": {**headers, **once}}
        return super().apply_async(entry, producer=producer, advance=False, **kwargs)

    def _keys(self, entry: Any) -> list[str] | None:
        args, kwargs = _evaluate_entry_args(entry.args), _evaluate_entry_kwargs(entry.kwargs)
        keys: list[str] | None = self.app.amqp.router.keys(entry.task, args, kwargs, entry.options)
        return keys


def firing(entry: Any, reserved: Any) -> int | None:
    """The number of the firing of an entry that is due: the minute of a crontab; how many intervals have passed since
    1970. `reserved` is the entry for the next firing, whose last_run_at is now. None: unknown.
    """
    now = reserved.last_run_at
    if isinstance(entry.schedule, crontab):
        return int(_latest(entry.schedule, entry.last_run_at, now).timestamp() // 60)
    # A firing follows the one before it after a whole interval, so no two of a beat have the same number.
    every_s = entry.schedule.run_every.total_seconds() if isinstance(entry.schedule, schedule) else 0
    return int(now.timestamp() // every_s) if every_s else None


def _latest(of: crontab, last_run_at: datetime, now: datetime) -> datetime:
    """The latest time up to now. A beat that starts late has the same as one that was on time."""
    due = _following(of, max(last_run_at, now - _DAY))
    if due > now:
        due = _following(of, last_run_at)
    while (later := _following(of, due)) <= now:
        due = later
    return due


def _following(of: crontab, after: datetime) -> datetime:
    start, delta, _ = of.remaining_delta(after)
    following: datetime = start + delta
    return following
