"""Random sequences of watchers, plans and outages, compared with a plain list of the occurrences.

Watchers of three plans look in any order, some with records that another one has advanced since. Time is moved by the
test. Each occurrence is fired once and in order, and missed ones as asked.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from redis import Redis

from celery_lanes.monitoring import inspection
from celery_lanes.protocol import Store
from chatlanes.bot.schedules import MISSED_AFTER_MS, MOST_AT_ONCE, Schedule, ScheduleRecord, owner_of
from chatlanes.tasks.schedules import FORGET_AFTER_MS, Watcher
from tests.tasks.test_schedules import BOT_ID, served

pytestmark = pytest.mark.slow

MINUTE_MS = 60_000
#: A full hour, in the past of Redis' clock.
BEGIN_MS = 1_750_000_000_000 // 3_600_000 * 3_600_000


def every(minutes: int, name: str, missed: Any) -> Schedule:
    return Schedule(name, f"*/{minutes} * * * *", lambda ctx: None, missed=missed)


#: What workers of different versions have. A schedule is named as its way with missed occurrences.
PLANS = (
    (every(5, "run", "run"), every(1, "all", "all"), every(5, "skip", "skip")),
    (every(4, "run", "run"), every(1, "all", "all")),
    (every(5, "run", "run"), every(1, "all", "all"), every(10, "skip", "skip")),
)
OWNER = owner_of(BOT_ID)
REMOVED = 0


class Clock(Store):
    """A store whose time is that of the test. With `former`, it reads records that are not the newest."""

    now_ms = BEGIN_MS
    former: dict[tuple[str, str], bytes] | None = None

    def schedules(self) -> tuple[int, dict[tuple[str, str], bytes]]:
        records = super().schedules()[1] if self.former is None else self.former
        return self.now_ms, records


class WatchersMachine(RuleBasedStateMachine):
    client: Redis

    @initialize()
    def start(self) -> None:
        self.client.flushall()
        self.store = Clock(self.client)
        self.watchers: list[tuple[Watcher, int]] = []
        self.has_looked: list[bool] = []
        #: name -> its interval in minutes, and the time after which occurrences are due, or REMOVED and when
        self.known: dict[str, tuple[int, int]] = {}
        self.expected: dict[str, list[int]] = {"run": [], "all": [], "skip": []}

    @rule(plan=st.sampled_from(range(len(PLANS))))
    def start_a_worker(self, plan: int) -> None:
        self.watchers.append((Watcher(served(*PLANS[plan]), self.store), plan))
        self.has_looked.append(False)
        self.look(len(self.watchers) - 1, False)

    @rule(seconds=st.sampled_from([1, 59, 60, 61, 240, 301, 3_600, 10_000]))
    def wait(self, seconds: int) -> None:
        self.store.now_ms += seconds * 1000

    @rule(number=st.integers(0, 5), together=st.booleans())
    def look(self, number: int, together: bool) -> None:
        """One looks; `together`: all that look regularly have read the records before it."""
        if not self.watchers:
            return
        chosen = number % len(self.watchers)
        before = self.store.schedules()[1]
        pause_s = self.watchers[chosen][0].look()
        assert 0 < pause_s < 61
        self.expect(chosen)
        if together:
            self.store.former = before
            for (watcher, _), has_looked in zip(self.watchers, self.has_looked, strict=True):
                if has_looked:
                    watcher.look()
            self.store.former = None
            self.expect_of_the_others(chosen, before)
        self.compare()

    def expect(self, number: int) -> None:
        plan = PLANS[self.watchers[number][1]]
        is_new, self.has_looked[number] = not self.has_looked[number], True
        if is_new:
            for name in self.known.keys() - {each.name for each in plan}:
                self.expect_removal(name)
        for schedule in plan:
            self.expect_firing(schedule, is_new)

    def expect_removal(self, name: str) -> None:
        minutes, at_ms = self.known[name]
        if minutes:
            self.known[name] = (REMOVED, self.store.now_ms)
        elif at_ms < self.store.now_ms - FORGET_AFTER_MS:
            del self.known[name]

    def expect_of_the_others(self, chosen: int, before: dict[tuple[str, str], bytes]) -> None:
        """They change only what the first one has left: schedules that it does not have, or has with another plan."""
        now = {name: ScheduleRecord.decode(before[OWNER, name]) for owner, name in before if owner == OWNER}
        for number, (_, plan) in enumerate(self.watchers):
            for schedule in PLANS[plan] if self.has_looked[number] else ():
                if schedule.name in now or schedule.name not in self.known:
                    self.expect_firing(schedule, False)

    def expect_firing(self, schedule: Schedule, is_new: bool) -> None:
        now_ms, minutes = self.store.now_ms, int(schedule.cron.split()[0][2:])
        if schedule.name not in self.known or (is_new and self.known[schedule.name][0] != minutes):
            self.known[schedule.name] = (minutes, now_ms)
        known_minutes, after_ms = self.known[schedule.name]
        step_ms = minutes * MINUTE_MS
        due = range((after_ms // step_ms + 1) * step_ms, now_ms + 1, step_ms)
        if known_minutes != minutes or not due:
            return
        self.known[schedule.name] = (minutes, due[-1])
        last = due[-MOST_AT_ONCE:]
        past = [at_ms for at_ms in last if at_ms < now_ms - MISSED_AFTER_MS]
        kept = {"run": 1, "all": len(past), "skip": 0}[schedule.missed]
        self.expected[schedule.name] += last[max(len(past) - kept, 0) :]

    def compare(self) -> None:
        fired: dict[str, list[int]] = {"run": [], "all": [], "skip": []}
        found: Any = inspection.pending(self.client, "updates", 100_000)
        for message_id in found:
            _, _, due_ms, name = message_id.split(":")
            fired[name].append(int(due_ms))
        assert fired == self.expected
        records = {name: ScheduleRecord.decode(each) for (_, name), each in Store.schedules(self.store)[1].items()}
        assert {name: each.after_ms for name, each in records.items()} == {
            name: after_ms for name, (_, after_ms) in self.known.items()
        }


def test_any_sequence_of_watchers(redis_url: str) -> None:
    with Redis.from_url(redis_url) as client:
        machine = type("WatchersMachine", (WatchersMachine,), {"client": client})
        run_state_machine_as_test(
            machine,
            settings=settings(max_examples=100, stateful_step_count=30, suppress_health_check=list(HealthCheck)),
        )
