"""The garbage collector of a worker leaves the messages in hand alone."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tasks.lanes.books import Pool
from tasks.lanes.garbage import OBJECTS, in_hand, leave_alone


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.parametrize(
    ("slots", "spare", "expected"),
    [(1, 15, 16), (250, 15, 450), (250, 0, 250)],
    ids=["solo", "many threads", "greenlets"],
)
def test_as_many_are_in_hand_as_run_and_as_a_turn_brings(slots: int, spare: int, expected: int) -> None:
    assert in_hand(_pool(slots, spare)) == expected


@pytest.mark.parametrize(("before", "expected"), [(700, 25_000), (50_000, 50_000), (0, 0)], ids=["usual", "set", "off"])
def test_it_waits_for_longer_and_never_against_what_was_set(before: int, expected: int) -> None:
    # Given a bot that has perhaps set it, while it was imported
    gc.set_threshold(before, 10, 10)
    # When the worker starts
    leave_alone(_pool(250, 0))
    # Then the newest wait, and what was there before is not looked through
    assert OBJECTS * 250 == 25_000
    assert gc.get_threshold() == (expected, 10, 10)
    assert gc.get_freeze_count() > 0


def _pool(slots: int, spare: int) -> Pool:
    return Pool(slots=lambda: slots, forks=False, spare=spare)
