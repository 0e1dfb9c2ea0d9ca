"""When a repeating job runs: at intervals, or at a time of day on some days. Pure.

The times of a plan depend on nothing but the plan: a job that runs late, or whose run fails, is due at the same times
afterwards. A time of day that a change to summer time skips is due as much later as is skipped; one that occurs twice
is due the first time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from chatlanes.bot.adapters.errors import PermanentError
from chatlanes.bot.timers import MOST_S

#: The types that python-telegram-bot accepts as a time.
When = float | timedelta | datetime | time

#: A month without the wanted day is followed by one that has it.
_MOST_DAYS = 64


class JobError(PermanentError, ValueError):
    """A job that cannot be stored or set here."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Every `every_ms`, from `start_ms` until `last_ms`."""

    every_ms: int
    start_ms: int
    last_ms: int | None = None

    def next_ms(self, after_ms: int) -> int | None:
        """The first time after this one, in ms since 1970; None if there is none."""
        passed = 0 if after_ms < self.start_ms else (after_ms - self.start_ms) // self.every_ms + 1
        due_ms = self.start_ms + passed * self.every_ms
        return None if self.last_ms is not None and due_ms > self.last_ms else due_ms

    @property
    def kind(self) -> tuple[Any, ...]:
        """Two plans that a bot sets at its start are the same if this is equal."""
        return (self.every_ms,)


@dataclass(frozen=True, slots=True)
class Calendar:
    """At a time of day, given in seconds, on these `weekdays` (0 is Sunday) or on this `day` of each month (-1 is the
    last one). `zone` is the name of a time zone, or its offset in seconds.
    """

    at_s: int
    zone: str | int
    weekdays: tuple[int, ...] = ()
    day: int = 0

    last_ms = None

    def next_ms(self, after_ms: int) -> int | None:
        """The first time after this one, in ms since 1970."""
        zone = ZoneInfo(self.zone) if isinstance(self.zone, str) else timezone(timedelta(seconds=self.zone))
        # In a change to summer time at midnight, yesterday's time may be today.
        date = datetime.fromtimestamp(after_ms / 1000, zone).date() - timedelta(days=1)
        minutes, second = divmod(self.at_s, 60)
        for _ in range(_MOST_DAYS):
            if self._is_day(date.day, (date + timedelta(days=1)).day, (date.weekday() + 1) % 7):
                due = datetime.combine(date, time(*divmod(minutes, 60), second), zone)
                if (due_ms := round(due.timestamp() * 1000)) > after_ms:
                    return due_ms
            date += timedelta(days=1)
        raise AssertionError(f"{self} has no next time")

    @property
    def kind(self) -> tuple[Any, ...]:
        return (self.at_s, self.zone, self.weekdays, self.day)

    def _is_day(self, day: int, following: int, weekday: int) -> bool:
        if self.weekdays:
            return weekday in self.weekdays
        return following == 1 if self.day == -1 else day == self.day


Plan = Interval | Calendar


def interval(every: float | timedelta, first: When | None, last: When | None, zone: tzinfo, now: datetime) -> Interval:
    """Raises JobError."""
    every_s = seconds(every)
    if every_s <= 0:
        raise JobError(f"interval={every!r}: use a number of seconds above 0, or such a timedelta")
    every_ms = max(round(every_s * 1000), 1)
    start_ms = every_ms + ms_of(now) if first is None else ms_of(moment(first, zone, now))
    last_ms = None if last is None else ms_of(moment(last, zone, now))
    if last_ms is not None and first is not None and last_ms < start_ms:
        raise JobError("'last' must not be before 'first'")
    return Interval(every_ms, start_ms, last_ms)


def daily(at: time, days: tuple[int, ...], zone: tzinfo) -> Calendar:
    """Raises JobError."""
    if not days or not set(days) <= set(range(7)):
        raise JobError(f"days={days!r}: use a tuple of numbers from 0 (Sunday) to 6")
    return Calendar(_seconds(at), _zone_of(at.tzinfo or zone), tuple(sorted(set(days))))


def monthly(at: time, day: int, zone: tzinfo) -> Calendar:
    """Raises JobError."""
    if day not in (-1, *range(1, 32)):
        raise JobError(f"day={day!r}: use a number from 1 to 31, or -1 for the last day of each month")
    return Calendar(_seconds(at), _zone_of(at.tzinfo or zone), day=day)


def moment(when: When, zone: tzinfo, now: datetime, *, is_next: bool = False) -> datetime:
    """The time that python-telegram-bot means by this argument. `is_next`: a time of day that has passed is tomorrow's.

    Raises JobError.
    """
    if isinstance(when, datetime):
        return _in_zone(when, zone)
    if isinstance(when, time):
        date = now.astimezone(when.tzinfo or zone).date()
        due = _in_zone(datetime.combine(date, when), zone)
        return due + timedelta(days=1) if is_next and due <= now else due
    return now + timedelta(seconds=seconds(when))


def seconds(found: Any) -> float:
    """The length of a timedelta, or a number of seconds. Raises JobError."""
    found_s = found.total_seconds() if isinstance(found, timedelta) else found
    if not isinstance(found_s, int | float):
        raise JobError(f"{found!r} is not a time: use seconds, a timedelta, a datetime or a time")
    if not abs(found_s) <= MOST_S:
        raise JobError(f"{found!r} is too long: a job may be set for at most ten years from now")
    return found_s


def ms_of(found: datetime) -> int:
    return round(found.timestamp() * 1000)


def plan_from(found: dict[str, Any]) -> Plan:
    """The plan whose `asdict` was stored as JSON."""
    if "every_ms" in found:
        return Interval(**found)
    return Calendar(**{**found, "weekdays": tuple(found["weekdays"])})


def _in_zone(found: datetime, zone: tzinfo) -> datetime:
    """A time without a zone is in this one. The zones of pytz have their own method for that."""
    if found.tzinfo is not None:
        return found
    localize = getattr(zone, "localize", None)
    localized: datetime = found.replace(tzinfo=zone) if localize is None else localize(found)
    return localized


def _seconds(at: time) -> int:
    if not isinstance(at, time):
        raise JobError(f"{at!r} is not a time of day: use datetime.time")
    return (at.hour * 60 + at.minute) * 60 + at.second


def _zone_of(zone: tzinfo) -> str | int:
    """The name of a zone of zoneinfo or pytz, or the offset of a fixed one."""
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)
    if isinstance(name, str):
        return name
    offset = zone.utcoffset(None)
    if offset is None:
        raise JobError(f"the time zone {zone!r} has no name to store: use zoneinfo.ZoneInfo")
    return round(offset.total_seconds())
