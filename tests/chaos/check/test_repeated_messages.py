"""The checker must tell excusable repeated messages from needless ones."""

import pytest

from tests.chaos.story import Story

NEEDLESS = "sent twice without need"


def sent_twice(*, unanswered: bool = False, noted: bool = False) -> Story:
    """The worker prefork dies after its call at 0.4 s; the worker threads repeats it."""
    story = Story().run(1, 0.0, taken_back_s=3.5, says=(0.4,), unanswered=unanswered, noted=noted)
    return story.kills(1, 2.0).run(1, 4.0, 5.0, pid=2, says=(4.5,))


def counted(story: Story) -> tuple[int, int]:
    verdict = story.judged(1)
    return verdict.twice_in_flight.total(), len(verdict.violations[NEEDLESS])


def test_unanswered_call_may_be_repeated() -> None:
    assert counted(sent_twice(unanswered=True)) == (1, 0)


def test_answered_call_must_not_be_repeated() -> None:
    assert counted(sent_twice()) == (0, 1)


def test_the_fault_that_met_the_call_is_reported() -> None:
    assert sent_twice(unanswered=True).judged(1).met_by == {"kill_all": 1}


def test_unanswered_call_without_a_fault_must_not_be_repeated() -> None:
    story = Story().run(1, 0.0, taken_back_s=3.5, says=(0.4,), unanswered=True).kills(9, 2.0)
    story.injects("freeze", "threads", 0.3).injects("stop", "prefork", 0.3).injects("hole_redis", "prefork", 9.0)

    assert counted(story.run(1, 4.0, 5.0, pid=2, says=(4.5,))) == (0, 1)


@pytest.mark.parametrize("fault", [("lost_answers", "telegram"), ("freeze", "prefork"), ("outage", "redis")])
def test_fault_during_an_unanswered_call_excuses_a_repeat(fault: tuple[str, str]) -> None:
    story = Story().run(1, 0.0, taken_back_s=3.5, says=(0.4,), unanswered=True).injects(*fault, 0.3, 5.0)

    assert counted(story.run(1, 4.0, 5.0, pid=2, says=(4.5,))) == (1, 0)


@pytest.mark.parametrize(
    ("what", "target", "at_s", "expected"),
    [("lost_answers", "telegram", 0.3, (1, 0)), ("freeze", "redis", 9.0, (0, 1)), ("freeze", "threads", 0.3, (0, 1))],
)
def test_a_message_that_its_own_call_repeats_is_excused_by_a_fault_during_the_call(
    what: str, target: str, at_s: float, expected: tuple[int, int]
) -> None:
    # As a stream does, whose outcome is noted then
    story = Story().run(1, 0.0, 5.0, says=(0.4,), noted=True, again_s=0.9).injects(what, target, at_s, 0.1)
    assert counted(story) == expected


def test_call_of_a_process_that_an_update_killed_may_be_repeated() -> None:
    story = Story().run(1, 0.0, taken_back_s=3.5, says=(0.4,), unanswered=True)
    story.run(480, 0.1, 0.6, keys=("chat:8",), end="die", taken_back_s=3.5)

    assert story.run(1, 4.0, 5.0, pid=2, says=(4.5,)).judged(1).met_by == {"poison": 1}


@pytest.mark.parametrize("fault", [("cut_redis", "prefork"), ("freeze", "prefork"), ("freeze", "redis")])
def test_fault_that_delays_the_answer_excuses_a_repeat(fault: tuple[str, str]) -> None:
    assert counted(sent_twice().injects(*fault, at_s=0.3, for_s=2.0)) == (1, 0)


@pytest.mark.parametrize(
    ("what", "target", "at_s"),
    [("hole_redis", "threads", 0.3), ("hole_telegram", "prefork", 0.3), ("hole_redis", "prefork", 1.0)],
)
def test_fault_elsewhere_or_later_is_no_excuse(what: str, target: str, at_s: float) -> None:
    assert counted(sent_twice().injects(what, target, at_s, for_s=0.5)) == (0, 1)


@pytest.mark.parametrize("unanswered", [True, False])
def test_repeat_of_a_noted_call_is_needless(unanswered: bool) -> None:
    story = sent_twice(unanswered=unanswered, noted=True).injects("cut_redis", "prefork", 0.3)

    assert counted(story) == (0, 1)


def test_without_journal_every_repeat_counts() -> None:
    story = Story(fences=False).run(1, 0.0, says=(0.4,)).injects("cut_redis", "prefork", 0.4).kills(1, 0.5)

    assert counted(story.run(1, 20.0, 21.0, pid=2, says=(20.5,))) == (0, 1)


def test_equal_numbers_of_two_updates_are_two_messages() -> None:
    verdict = Story().run(1, 0.0, 1.0, says=(0.5, 0.6)).run(2, 1.0, 2.0, says=(1.5, 1.6)).judged(1, 2)

    assert verdict.is_clean
    assert not verdict.twice_in_flight
