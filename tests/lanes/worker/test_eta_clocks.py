"""A task with an eta or countdown while a clock is set: only that of Redis decides, and the task runs once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.clocks import DAY_S, HOUR_S, Clock
from tests.support.history import ids
from tests.support.lab import LabMaker

POOLS = [("prefork", 2), ("threads", 4)]


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool[0])
def test_the_clock_of_the_server_is_set(
    make_lab: LabMaker, clock: Clock, tmp_path: Path, pool: tuple[str, int]
) -> None:
    with clock.server(tmp_path / "redis") as server:
        lab = make_lab(server.url, options={"lease_seconds": 2})
        lab.worker(*pool)
        lab.send("hour", ["lane"], countdown=HOUR_S)
        lab.send("days", ["lane"], countdown=2 * DAY_S)
        # When the clock is set back, Then a task waits for it, and is not lost
        clock.set(-HOUR_S)
        lab.send("second", ["lane"], countdown=1)
        lab.send("now", ["lane"])
        lab.ended("now")
        assert {timer.id for timer in lab.store.next_timers()} == {"second", "hour", "days"}
        clock.set(0)
        lab.ended("second")
        # When it is set forward, back and forward again, Then the messages due by it run once, and nothing else
        for ahead_s in (HOUR_S + 60, 0, HOUR_S + 60):
            clock.set(ahead_s)
            lab.ended("hour")
        lab.drained()
        assert [timer.id for timer in lab.store.next_timers()] == ["days"]
        assert ids(lab.history, "start") == ["now", "second", "hour"]
        lab.close()


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool[0])
def test_the_clock_of_the_worker_is_set(
    make_lab: LabMaker, clock: Clock, monkeypatch: pytest.MonkeyPatch, pool: tuple[str, int]
) -> None:
    lab = make_lab(options={"lease_seconds": 2})
    with monkeypatch.context() as patched:
        for name, value in clock.environment.items():
            patched.setenv(name, value)
        lab.worker(*pool)
    lab.send("hour", ["lane"], countdown=HOUR_S)
    for ahead_s in (2 * HOUR_S, -DAY_S, 0, DAY_S):
        clock.set(ahead_s)
        lab.send(f"second{ahead_s}", ["lane"], countdown=1)
        lab.ended(f"second{ahead_s}")
    lab.drained()
    # Then it has waited for nothing, and nothing has run early or twice
    assert [timer.id for timer in lab.store.next_timers()] == ["hour"]
    assert ids(lab.history, "start") == [f"second{ahead_s}" for ahead_s in (2 * HOUR_S, -DAY_S, 0, DAY_S)]
