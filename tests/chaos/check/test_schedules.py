"""Occurrences that were not fired, ran early, out of order or twice are found."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.check import schedules
from chaos.check.checker import check
from chaos.evidence.aof import Book, Hold
from chaos.evidence.records import Effect, Evidence, runs_in
from tests.chaos.story import Story


def evidence(*runs: tuple[str, int, float], last: int = 16, unsent: tuple[str, int] | None = None) -> Evidence:
    """`runs`: schedule, when it was due, and when it ran. Each sends one message, except `unsent`."""
    records: list[dict[str, Any]] = []
    effects, book = [], Book()
    for number, (name, due_s, at_s) in enumerate(runs):
        run, message, fence = str(number), f"schedule:{due_s * 1000}:{name}", f"{at_s * 1e6:.0f}"
        known = {"id": 0, "run": run}
        keys = [f"schedule:{name}"]
        book.holds[message, fence] = Hold(message, fence, "here:1:x")
        records += [
            {"what": "start", "at_s": at_s, "keys": keys, "pid": 1, "fence": fence, "message": message, **known},
            {"what": "call", "at_s": at_s, "number": 0, **known},
            {"what": "called", "at_s": at_s + 0.1, "number": 0, **known},
            {"what": "end", "at_s": at_s + 0.1, **known},
        ]
        if (name, due_s) != unsent:
            effects.append(Effect(at_s, 0, 0, run, fence, text=f"schedule {name} {due_s}"))
    found = vars(Story().evidence())
    others = runs_in(records, [], book.holds, 0.0)
    found |= {"others": others, "effects": effects, "book": book, "last_fired": {"all": last}, "calm_at_s": 18.0}
    return Evidence(**found)


ALL = (("all", 12, 12.1), ("all", 14, 17.0), ("all", 16, 17.2))


def test_each_occurrence_fired_once() -> None:
    assert check(evidence(*ALL)).is_clean
    assert check(evidence(*ALL)).fired == {"all": 3}


def test_run_may_leave_out_what_was_missed() -> None:
    found = evidence(("run", 11, 11.1), ("run", 15, 15.1))
    assert check(Evidence(**{**vars(found), "last_fired": {"run": 15}})).is_clean


@pytest.mark.parametrize(
    ("found", "sentences"),
    [
        (evidence(ALL[0], ALL[2]), ["the schedule all has sent nothing at 14"]),
        (evidence(*ALL[:2]), ["the schedule all has sent nothing at 16"]),
        (evidence(*ALL, unsent=("all", 14)), ["the schedule all has sent nothing at 14"]),
        (evidence(*ALL, ("run", 13, 13.0), unsent=("run", 13)), ["the schedule run has sent nothing at 13"]),
        (evidence(("all", 16, 15.9)), ["the schedule all ran 0.100 s early, at 15.900"]),
        (evidence(ALL[0], ("all", 14, 17.3), ALL[2]), ["the schedule all ran for 14 at 17.300, after 16"]),
    ],
)
def test_wrong_schedules_are_found(found: Evidence, sentences: list[str]) -> None:
    assert [str(each) for each in [*schedules.lost(found), *schedules.wrong(found)]] == sentences
    assert not check(found).is_clean


def test_schedule_that_stopped_is_found() -> None:
    found = vars(evidence(*ALL))
    assert not schedules.lost(Evidence(**{**found, "calm_at_s": 40.0}))
    assert [str(each) for each in schedules.lost(Evidence(**{**found, "calm_at_s": 50.0}))] == [
        "the schedule all was not fired after 16"
    ]


def test_a_run_after_the_calm_may_be_cut_by_a_drill() -> None:
    after = ("all", 18, 18.1)
    assert check(evidence(*ALL, after, unsent=("all", 18))).is_clean
    # The last one that was fired before the drill has sent its message
    assert schedules.lost(evidence(*ALL, after, unsent=("all", 18), last=18))


def test_occurrence_that_came_twice_is_found() -> None:
    assert check(evidence(*ALL, ("all", 16, 18.0))).violations["sent twice without need"]


def test_occurrences_of_a_schedule_that_overlap_are_found() -> None:
    assert check(evidence(ALL[0], ("all", 14, 17.15), ALL[2])).violations["two at a time"]
