"""Schedules of a bot: functions that run at the times of cron expressions (SCHEDULES).

Guarantees that a list with a wrong schedule is refused when it is loaded, with one sentence, so that no worker starts
with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args
from zoneinfo import ZoneInfo

from cronsim import CronSimError

from chatlanes.bot.bot import check_takes
from chatlanes.bot.occurrences import Clockwork, Missed
from chatlanes.settings.imports import ImportPathError, import_object

if TYPE_CHECKING:
    from chatlanes.bot.context import Context

#: It becomes a part of keys in Redis and of message ids.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_EXPECTED = "write minute, hour, day, month and weekday, such as 0 9 * * mon-fri"


class ScheduleError(ImportPathError):
    """SCHEDULES does not name a list of schedules that can run."""


@dataclass(frozen=True)
class Schedule:
    """A function that runs at certain times: `SCHEDULES=mybot:schedules` with
    `schedules = [Schedule("digest", "0 9 * * mon-fri", send_digest, tz="Europe/Berlin")]`.

    Args:
        name: Unique among the schedules of the bot: 1 to 64 of A-Z a-z 0-9 _ . -
        cron: Minute, hour, day of the month, month and day of the week, as in crontab; before them possibly the second.
        function: Called with a Context at each time; a function or a coroutine function.
        tz: The time zone of the expression.
        missed: The occurrences that no worker fired in time, because none was running: `"run"` once for all of them,
            `"all"` once for each (the last 100), or `"skip"`.
    """

    name: str
    cron: str
    function: Callable[[Context], Any]
    tz: str = "UTC"
    missed: Missed = "run"

    @property
    def clockwork(self) -> Clockwork:
        return Clockwork(self.cron, self.tz)


def import_schedules(path: str, setting: str) -> list[Schedule]:
    """The schedules at `path`, the value of `setting`. Raises ScheduleError."""
    label = f"{setting}={path}"
    found = import_object(setting, path, ScheduleError)
    if not isinstance(found, list | tuple):
        raise ScheduleError(f"{label} is a {type(found).__name__}: write a list, such as [Schedule(…), Schedule(…)].")
    names = set[str]()
    for schedule in found:
        if not isinstance(schedule, Schedule):
            raise ScheduleError(f"{label} holds {schedule!r:.80}, which is not a Schedule: write Schedule(…).")
        if problem := next(_problems(schedule), None):
            raise ScheduleError(f"{label}: Schedule({schedule.name!r:.80}): {problem}.")
        if schedule.name in names:
            raise ScheduleError(f"{label}: two schedules are named {schedule.name!r}; give each a name of its own.")
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
