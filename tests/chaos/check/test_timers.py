"""Timers that are lost, fire twice, early, or although their update is buried are found."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chaos.check import timers
from chaos.check.checker import check
from chaos.evidence.records import Effect, Evidence, TimerRun, timers_in
from tests.chaos.story import Story


def begun(name: str, at_s: float, *, message: str = "", due_s: float = 10.0, ended: bool = True) -> TimerRun:
    return TimerRun(name, message or f"1:timer:{name}", from_s=due_s - 0.001, due_s=due_s, at_s=at_s, has_ended=ended)


def evidence(*runs: TimerRun, buried: Sequence[int] = (), unsent: Sequence[str] = ()) -> Evidence:
    """Two updates with two timers each."""
    found = Story().buries(*buried).evidence(5, 6)
    sent = [Effect(run.at_s, 5, 0, None, None, text=f"timer {run.name}") for run in runs if run.name not in unsent]
    return Evidence(**{**vars(found), "timers": runs, "timers_each": 2, "effects": sent})


ALL = (begun("5.0", 10.1), begun("5.1", 10.2), begun("6.0", 10.3), begun("6.1", 13.0))


def test_each_timer_fired_once() -> None:
    found = evidence(*ALL, begun("5.0", 12.0))
    assert (timers.lost(found), timers.wrong(found)) == ([], [])
    assert [round(late_s, 1) for late_s in timers.lateness_s(found)] == [0.1, 0.2, 0.3, 3.0]


@pytest.mark.parametrize(
    ("found", "sentences"),
    [
        (evidence(*ALL[1:]), ["the timer 5.0 has not run to its end"]),
        (evidence(*ALL[1:], begun("5.0", 11, ended=False)), ["the timer 5.0 has not run to its end"]),
        (evidence(*ALL, unsent=["6.1"]), ["the timer 6.1 has not run to its end"]),
        (evidence(*ALL, begun("5.0", 12, message="1:timer:other")), ["the timer 5.0 fired more than once"]),
        (evidence(*ALL[1:], begun("5.0", 9.9)), ["the timer 5.0 fired 0.100 s early"]),
        (evidence(*ALL[:3], buried=[6]), ["the timer 6.0 fired, but its update is buried"]),
        (evidence(*ALL[:2], buried=[6]), []),
    ],
)
def test_wrong_timers_are_found(found: Evidence, sentences: list[str]) -> None:
    assert [str(each) for each in [*timers.lost(found), *timers.wrong(found)]] == sentences


def test_timers_are_judged_with_the_updates() -> None:
    assert check(evidence(*ALL[1:])).violations["timers lost"]


def test_updates_that_ran_with_an_earlier_one_set_no_timers() -> None:
    found = Story().run(5, 1.0, 2.0, group=(5, 6)).evidence(5, 6)
    assert [str(each) for each in timers.lost(Evidence(**{**vars(found), "timers_each": 1}))] == [
        "the timer 5.0 has not run to its end"
    ]


def test_history_of_timers() -> None:
    known = {"id": 5, "what": "start", "kind": "timer", "name": "5.0", "from_s": 1.0, "due_s": 1.1}
    records = [
        {"run": "1", "at_s": 1.2, "message": "timer:a", **known},
        {"run": "1", "at_s": 1.3, "id": 5, "what": "end"},
        {"run": "2", "at_s": 1.4, "message": "timer:b", **known},
        {"run": "3", "at_s": 1.5, "id": 6, "what": "start"},
        {"run": "3", "at_s": 1.6, "id": 6, "what": "end"},
    ]
    assert timers_in(records) == [
        TimerRun("5.0", "timer:a", 1.0, 1.1, 1.2, True),
        TimerRun("5.0", "timer:b", 1.0, 1.1, 1.4, False),
    ]
