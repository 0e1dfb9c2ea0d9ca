"""Alarms run when they are due, in order, and never after they were cancelled."""

from __future__ import annotations

import threading

from chatlanes.lanes.runtime.timers import Alarms
from tests.support.waiting import WITHIN_S, until


def test_alarms_go_off_in_the_order_of_their_times() -> None:
    # Given a late alarm, and an earlier one that is set after it
    alarms, rung = Alarms(), []
    alarms.on(0.5, lambda: rung.append("late"))
    alarms.on(0.05, lambda: rung.append("early"))
    # Then both go off
    until(lambda: len(rung) == 2)
    assert rung == ["early", "late"]


def test_an_alarm_that_was_switched_off_in_time_never_goes_off() -> None:
    alarms, rung = Alarms(), []
    off, on = alarms.on(3600, lambda: rung.append("off")), alarms.on(0, lambda: rung.append("on"))
    assert alarms.off(off)
    until(lambda: rung == ["on"])
    assert not alarms.off(off)
    assert not alarms.off(on)


def test_no_alarm_waits_for_another() -> None:
    # Given one whose action waits for that of the next
    alarms, second = Alarms(), threading.Event()
    done = threading.Event()
    alarms.on(0, lambda: second.wait(WITHIN_S) and done.set())
    alarms.on(0.01, second.set)
    assert done.wait(WITHIN_S)


def test_an_action_that_fails_stops_no_other() -> None:
    alarms, rung, failed = Alarms(), [], []
    hook, threading.excepthook = threading.excepthook, failed.append
    try:
        alarms.on(0, lambda: [][0])
        until(lambda: failed)
        alarms.on(0, lambda: rung.append("next"))
        until(lambda: rung)
    finally:
        threading.excepthook = hook
