"""Schedules of a bot: functions that run at the times of cron expressions (SCHEDULES).

Guarantees that a list with a wrong schedule is refused when it is loaded, and that occurrences strictly increase, even
when the clocks of the zone change. As in Debian's cron, a time of day that is skipped in spring occurs at the end of
the gap, and one that is repeated in autumn occurs once; an expression with `*` at the beginning of its minute or hour,
or with seconds, follows the clock of the zone instead. Times are ms since 1970.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import takewhile
from typing import Any, Literal, NamedTuple, get_args
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from chatlanes.settings.imports import ImportPathError, check_takes, import_object

_OWNER = "/schedules"
#: `ctx.kind` of an occurrence.
KIND = "schedule"

#: After an outage: one firing for all missed occurrences, one for each, or none.
Missed = Literal["run", "all", "skip"]

#: The most occurrences of a schedule that are fired at once: the last ones.
MOST_AT_ONCE = 100
#: An occurrence that nobody has fired for this long is missed. A restart of the only worker takes less.
MISSED_AFTER_MS = 60_000
#: The first period that is searched backwards; each next one is this many times longer.
_FIRST_SPAN_MS, _NEXT_SPAN = 60_000, 4


class Clockwork(NamedTuple):
    """When a schedule occurs."""

    cron: str
    tz: str

    def after(self, after_ms: int) -> Iterator[int]:
        """Its occurrences after this time, in order. Ends if there is none within 50 years."""
        last_ms = after_ms
        for found in CronSim(self.cron, datetime.fromtimestamp(after_ms // 1000, ZoneInfo(self.tz))):
            at_ms = int(found.timestamp()) * 1000
            if at_ms > last_ms:  # in autumn, a time of day may be found again
                yield at_ms
                last_ms = at_ms

    def next(self, after_ms: int) -> int | None:
        return next(self.after(after_ms), None)

    def last(self, after_ms: int, until_ms: int, most: int) -> list[int]:
        """The last occurrences, at most this many, after the one time and not after the other."""
        span_ms = _FIRST_SPAN_MS
        while True:
            from_ms = max(after_ms, until_ms - span_ms)
            found = deque(takewhile(lambda at_ms: at_ms <= until_ms, self.after(from_ms)), maxlen=most)
            if len(found) == most or from_ms == after_ms:
                return list(found)
            span_ms *= _NEXT_SPAN


class Occurrence(NamedTuple):
    """`ctx.schedule`: the name of the schedule, when it was due, in its time zone, and how many seconds later this run
    began.
    """

    name: str
    due: datetime
    late_s: float


def owner_of(bot_id: int) -> str:
    """The owner of a bot's records in Redis."""
    return f"{bot_id}{_OWNER}"


def bot_of(owner: str) -> int | None:
    """The bot of an owner of records. None: they are not a bot's."""
    bot_id = owner.removesuffix(_OWNER)
    return int(bot_id) if owner.endswith(_OWNER) and bot_id.isdecimal() else None


def content_of(name: str, tz: str, due_ms: int) -> dict[str, Any]:
    """The content of the message of an occurrence, which takes the place of an update."""
    return {KIND: {"name": name, "tz": tz, "due_ms": due_ms}}


def is_occurrence(content: dict[str, Any]) -> bool:
    return KIND in content and "update_id" not in content


def occurrence_of(content: dict[str, Any], late_s: float = 0.0) -> Occurrence:
    body = content[KIND]
    return Occurrence(body["name"], datetime.fromtimestamp(body["due_ms"] / 1000, ZoneInfo(body["tz"])), late_s)


def due_of(content: dict[str, Any]) -> datetime | None:
    """None: it is not an occurrence."""
    return occurrence_of(content).due if is_occurrence(content) else None


def session_key(content: dict[str, Any]) -> str:
    """The key of the session of an occurrence, which is also the key of its lane: one for each schedule."""
    return f"{KIND}:{content[KIND]['name']}"


@dataclass(frozen=True)
class ScheduleRecord:
    """The stored state of a schedule: its definition, the time after which occurrences are due, and the last one that
    was fired (None: none).
    """

    cron: str
    tz: str
    after_ms: int
    last_ms: int | None = None

    @classmethod
    def removed(cls, now_ms: int) -> ScheduleRecord:
        """Takes the place of the record of a schedule that a newer worker no longer has."""
        return cls("", "", now_ms)

    @property
    def is_removed(self) -> bool:
        return not self.cron

    @property
    def clockwork(self) -> Clockwork:
        return Clockwork(self.cron, self.tz)

    @classmethod
    def decode(cls, stored: bytes) -> ScheduleRecord:
        return cls(**json.loads(stored))

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    def advanced(self, due: Due) -> ScheduleRecord:
        return replace(self, after_ms=due.until_ms, last_ms=due.fires[-1] if due.fires else self.last_ms)


class Due(NamedTuple):
    """The occurrences to fire, oldest first, and the last one that is due, which is not fired if it is skipped."""

    fires: list[int]
    until_ms: int


def due(record: ScheduleRecord, missed: Missed, now_ms: int) -> Due | None:
    """The occurrences that are due now, at most the last MOST_AT_ONCE; None: there is none. `missed` applies to those
    that are late by more than MISSED_AFTER_MS.
    """
    found = record.clockwork.last(record.after_ms, now_ms, MOST_AT_ONCE)
    if not found:
        return None
    past = [at_ms for at_ms in found if at_ms < now_ms - MISSED_AFTER_MS]
    fired = {"run": past[-1:], "all": past, "skip": []}[missed]
    return Due(fired + found[len(past) :], found[-1])


#: It becomes a part of keys in Redis and of message ids.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_EXPECTED = "write minute, hour, day, month and weekday, such as 0 9 * * mon-fri"


@dataclass(frozen=True)
class Schedule:
    """A function that runs at certain times: `SCHEDULES=mybot:schedules` with
    `schedules = [Schedule("digest", "0 9 * * mon-fri", send_digest, tz="Europe/Berlin")]`.

    Args:
        name: Unique among the schedules of the bot: 1 to 64 of A-Z a-z 0-9 _ . -
        cron: Minute, hour, day of the month, month and day of the week, as in crontab; before them possibly the second.
        function: Called with a Context at each time; a function or a coroutine function.
        tz: The time zone of the expression.
        missed: The occurrences that no worker fired within a minute, because none was running: `"run"` once for all of
            them, `"all"` once for each (the last 100), or `"skip"`.
    """

    name: str
    cron: str
    function: Callable[[Any], Any]
    tz: str = "UTC"
    missed: Missed = "run"

    @property
    def clockwork(self) -> Clockwork:
        return Clockwork(self.cron, self.tz)


def import_schedules(path: str, setting: str) -> list[Schedule]:
    """The schedules at `path`, the value of `setting`. Raises ImportPathError."""
    label = f"{setting}={path}"
    found = import_object(setting, path)
    if not isinstance(found, list | tuple):
        raise ImportPathError(f"{label} is a {type(found).__name__}: write a list, such as [Schedule(…), Schedule(…)].")
    names = set[str]()
    for schedule in found:
        if not isinstance(schedule, Schedule):
            raise ImportPathError(f"{label} holds {schedule!r:.80}, which is not a Schedule: write Schedule(…).")
        if problem := next(_problems(schedule), None):
            raise ImportPathError(f"{label}: Schedule({schedule.name!r:.80}): {problem}.")
        if schedule.name in names:
            raise ImportPathError(f"{label}: two schedules are named {schedule.name!r}; give each a name of its own.")
        names.add(schedule.name)
    return list(found)


def _problems(schedule: Schedule) -> Iterator[str]:
    if not isinstance(schedule.name, str) or not _NAME.fullmatch(schedule.name):
        yield "a name has 1 to 64 of A-Z a-z 0-9 _ . -"
    try:
        check_takes("function", schedule.function, "ctx")
    except TypeError as error:
        yield str(error)
    if schedule.missed not in get_args(Missed):
        yield f"missed={schedule.missed!r}: write {', '.join(map(repr, get_args(Missed)))}"
    if not _is_zone(schedule.tz):
        yield f"there is no time zone {schedule.tz!r}; write a name such as Europe/Berlin"
    else:
        yield from _problems_of_cron(schedule)


def _problems_of_cron(schedule: Schedule) -> Iterator[str]:
    if not isinstance(schedule.cron, str):
        yield f"{schedule.cron!r} is not a cron expression; {_EXPECTED}"
        return
    try:
        if schedule.clockwork.next(0) is None:
            yield f"{schedule.cron!r} never occurs; correct its days and months"
    except CronSimError as error:
        yield f"{schedule.cron!r} is not a cron expression ({error}); {_EXPECTED}"


def _is_zone(tz: object) -> bool:
    try:
        return isinstance(tz, str) and bool(ZoneInfo(tz))
    except (KeyError, ValueError, OSError):
        return False
