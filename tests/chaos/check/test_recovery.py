"""Recovery times after a kill."""

import pytest

from tests.chaos.story import Story


def test_recovery_ends_with_the_last_restarted_update() -> None:
    story = Story().run(1, 0.0).run(2, 0.0, keys=("chat:8",)).kills(1, 0.5)
    story.run(1, 3.5, 4.0, pid=2).run(2, 4.0, 4.5, pid=2, keys=("chat:8",))

    assert story.judged(1, 2).recoveries_s == [3.5]


def test_leased_but_not_started_update_counts() -> None:
    story = Story().handed_out(1, 0.0, taken_back_s=3.0).kills(1, 0.5).run(1, 3.2, 4.0, pid=2)

    assert story.judged(1).recoveries_s == [pytest.approx(2.7)]


def test_ended_or_released_update_does_not_count() -> None:
    story = Story().run(1, 0.0, 0.4).handed_out(2, 0.0, taken_back_s=0.2).kills(1, 0.5).run(2, 9.0, 9.5, pid=2)

    assert story.judged(1, 2).recoveries_s == []
