"""Alarms fire when they are due, in order, and never after they were cancelled."""

from __future__ import annotations

import threading

from celery_lanes.runtime.threads import Alarms
from tests.support.waiting import WITHIN_S, until


def test_alarms_fire_in_the_order_of_their_times() -> None:
    # Given a late alarm, and an earlier one that is set after it
    alarms, fired = Alarms(), []
    alarms.on(0.5, lambda: fired.append("late"))
    alarms.on(0.05, lambda: fired.append("early"))
    # Then both fire, the earlier one first
    until(lambda: len(fired) == 2)
    assert fired == ["early", "late"]


def test_a_cancelled_alarm_does_not_fire() -> None:
    alarms, fired = Alarms(), []
    cancelled, other = alarms.on(3600, lambda: fired.append("cancelled")), alarms.on(0, lambda: fired.append("other"))
    assert alarms.off(cancelled)
    until(lambda: fired == ["other"])
    assert not alarms.off(cancelled)
    assert not alarms.off(other)


def test_a_blocking_action_delays_no_other_alarm() -> None:
    # Given an alarm whose action waits for the action of the next one
    alarms, second = Alarms(), threading.Event()
    done = threading.Event()
    alarms.on(0, lambda: second.wait(WITHIN_S) and done.set())
    alarms.on(0.01, second.set)
    assert done.wait(WITHIN_S)


def test_an_action_that_raises_stops_no_other_alarm() -> None:
    alarms, fired, failed = Alarms(), [], []
    hook, threading.excepthook = threading.excepthook, failed.append
    try:
        alarms.on(0, lambda: [][0])
        until(lambda: failed)
        alarms.on(0, lambda: fired.append("next"))
        until(lambda: fired)
    finally:
        threading.excepthook = hook
