"""Groups of updates: one run for all, the same group in each run, and no update between them."""

from __future__ import annotations

from tests.chaos.story import Story


def test_a_group_finishes_all_its_updates() -> None:
    story = Story().run(1, 0.0, 1.0, group=(1, 2, 3)).run(4, 2.0, 3.0)
    assert story.violations(1, 2, 3, 4) == {}


def test_a_rerun_has_the_same_group() -> None:
    story = Story().run(1, 0.0, group=(1, 2), taken_back_s=1.0).kills(1, 0.9)
    assert story.run(1, 2.0, 3.0, group=(1, 2), pid=2).violations(1, 2) == {}
    assert Story().run(1, 0.0, 1.0, taken_back_s=0.5).run(1, 2.0, 3.0, group=(1, 2)).violations(1, 2) == {
        "groups wrong": 1
    }


def test_after_an_interrupt_the_group_may_grow_but_not_change() -> None:
    story = Story().run(1, 0.0, 0.6, end="raise", taken_back_s=0.5).run(1, 1.0, 2.0, group=(1, 2))
    assert story.book
    story.book.interrupted.add(1)
    assert story.violations(1, 2) == {}
    shrunk = Story().run(1, 0.0, 0.6, group=(1, 2), end="raise", taken_back_s=0.5).run(1, 1.0, 2.0, group=(1, 3))
    assert shrunk.book
    shrunk.book.interrupted.add(1)
    assert shrunk.violations(1, 3) == {"groups wrong": 1}


def test_an_update_is_in_one_group() -> None:
    assert Story().run(1, 0.0, 1.0, group=(1, 2)).run(2, 2.0, 3.0).violations(1, 2) == {"groups wrong": 2}


def test_no_update_lies_between_two_of_a_group() -> None:
    story = Story().run(1, 0.0, 1.0, group=(1, 3)).run(2, 2.0, 3.0)
    assert story.violations(1, 2, 3) == {"groups wrong": 1}


def test_a_group_buried_with_poison_is_not_innocent() -> None:
    story = Story().run(249, 0.0, 1.0, group=(249, 250), end="raise").buries(249, 250)
    story.sessions = {}
    assert story.violations(249, 250) == {}
