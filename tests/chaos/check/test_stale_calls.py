"""The checker must find calls by stale holders."""

from tests.chaos.story import Story

STALE = "effects by stale holders"


def why(story: Story, *expected: int) -> str:
    [violation] = story.judged(*expected).violations[STALE]
    return str(violation)


def test_call_after_its_fence_was_taken_back_is_stale() -> None:
    story = Story().run(1, 0.0, 8.0, taken_back_s=3.5, says=(4.0,)).run(1, 9.0, 9.5, pid=2)

    assert story.violations(1) == {STALE: 1}
    assert "taken back at 3.500" in why(story, 1)


def test_call_sent_before_its_fence_was_taken_back_is_not_stale() -> None:
    assert Story().run(1, 0.0, 8.0, taken_back_s=3.5, says=(3.7,)).run(1, 9.0, 9.5, pid=2).violations(1) == {}


def test_call_after_the_next_update_started_is_stale() -> None:
    # A run that makes a call after its recorded end: its fence was never taken back.
    story = Story().run(1, 0.0, 1.0, says=(2.0,)).run(2, 1.0, 2.0, pid=2)

    assert "after 2 had started on chat:7" in why(story, 1, 2)


def test_overlapping_call_without_fences_is_stale() -> None:
    story = Story(fences=False).run(1, 0.0, 12.0, says=(11.0,)).run(1, 10.5, 10.9, pid=2)

    assert story.violations(1) == {STALE: 1}


def test_unknown_fence_is_stale() -> None:
    story = Story().run(1, 0.0, 1.0, says=(0.5,))
    story.book.holds.clear()  # type: ignore[union-attr]

    assert "never given" in why(story, 1)


def test_call_must_name_its_run() -> None:
    story = Story().run(1, 0.0, 1.0, says=(0.5,))
    story.records.clear()

    assert "does not name its run" in why(story.run(1, 2.0, 3.0), 1)
