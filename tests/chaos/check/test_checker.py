"""The checker must find each violation: histories made by hand, with one fault each."""

from chaos.evidence.records import InjectedFault
from tests.chaos.story import Story

RAISES, KILLS = 250, 480


def test_good_history_is_clean() -> None:
    story = Story().run(1, 0.0, 1.0, says=(0.5,)).run(2, 1.0, 2.0, pid=2).run(3, 0.5, 0.7, keys=("chat:8",))

    verdict = story.judged(1, 2, 3)

    assert verdict.is_clean
    assert (verdict.updates, verdict.runs, verdict.duplicates, verdict.late_starts) == (3, 3, 0, 0)


def test_update_that_never_ran_is_lost() -> None:
    assert [str(violation) for violation in Story().run(1, 0.0, 1.0).judged(1, 2).violations["lost"]] == [
        "2 never finished"
    ]


def test_update_whose_only_run_died_is_lost() -> None:
    assert Story().run(1, 0.0).kills(1, 0.5).violations(1) == {"lost": 1}


def test_update_finished_only_by_a_zombie_is_lost() -> None:
    assert Story().run(1, 0.0, 8.0, taken_back_s=3.0).violations(1) == {"lost": 1}


def test_rerun_after_a_death_is_clean() -> None:
    story = Story().run(1, 0.0, taken_back_s=3.0).kills(1, 0.5).run(1, 4.0, 5.0, pid=2).run(2, 5.0, 6.0, pid=2)

    verdict = story.judged(1, 2)

    assert verdict.is_clean
    assert verdict.duplicates == 0


def test_later_update_starting_first_is_out_of_order() -> None:
    assert Story().run(2, 0.0, 1.0).run(1, 1.0, 2.0).violations(1, 2) == {"out of order": 1}


def test_start_before_the_previous_end_is_out_of_order() -> None:
    # The first run of 1 dies; 2 must wait until 1 has run again.
    story = Story().run(1, 0.0, taken_back_s=0.6).kills(1, 0.5).run(2, 1.0, 2.0, pid=2).run(1, 4.0, 5.0, pid=2)

    assert story.violations(1, 2) == {"out of order": 2}


def test_two_runs_of_one_key_overlap() -> None:
    story = Story().run(1, 0.0, 2.0).run(2, 1.0, 3.0, pid=2)

    assert story.violations(1, 2) == {"out of order": 1, "two at a time": 1}


def test_any_shared_key_counts_as_overlap() -> None:
    story = Story().run(1, 0.0, 2.0, keys=("chat:7", "user:1")).run(2, 1.0, 3.0, keys=("chat:8", "user:1"))

    [overlap] = story.judged(1, 2).violations["two at a time"]

    assert str(overlap).startswith("user:1: 2 started")


def test_unfinished_run_overlaps_with_the_next() -> None:
    assert Story().run(1, 0.0).run(1, 9.0, 9.5, pid=2).violations(1) == {"two at a time": 1}


def test_takeover_from_a_frozen_worker_is_clean() -> None:
    story = Story().run(1, 0.0, 8.0, taken_back_s=3.5).run(1, 4.0, 5.0, pid=2).run(2, 5.0, 6.0, pid=2)

    verdict = story.judged(1, 2)

    assert verdict.is_clean
    assert verdict.duplicates == 1


def test_valid_lease_is_not_a_takeover() -> None:
    assert Story().run(1, 0.0, 8.0).run(1, 4.0, 5.0, pid=2).violations(1) == {"two at a time": 1}


def test_start_after_a_lost_lease_counts_as_late() -> None:
    # Frozen between its lease check and its first line; 2 was handed out meanwhile.
    story = Story().run(1, 4.0, 5.0, pid=2).run(2, 5.0, 6.0, pid=2).run(1, 7.0, 7.1)
    story.book.holds[1, "7000000"].until_s = 3.5  # type: ignore[union-attr]

    verdict = story.judged(1, 2)

    assert verdict.is_clean
    assert verdict.late_starts == 1


def test_without_fences_a_run_holds_for_the_visibility_timeout() -> None:
    assert Story(fences=False).run(1, 0.0, 12.0).run(1, 10.5, 11.0, pid=2).violations(1) == {}
    assert Story(fences=False).run(1, 0.0, 12.0).run(1, 9.5, 11.0, pid=2).violations(1) == {"two at a time": 1}


def test_reused_process_ids() -> None:
    story = Story().kills(1, 0.5).run(1, 1.0, 2.0, pid=1).run(2, 3.0, taken_back_s=3.6, pid=1).kills(1, 3.5)

    assert story.run(2, 4.0, 5.0, pid=2).judged(1, 2).is_clean


def test_poison_is_finished_at_the_end_of_its_last_run() -> None:
    def raised(*starts_s: float) -> Story:
        story = Story().buries(RAISES)
        for start_s in starts_s:
            story.run(RAISES, start_s, start_s + 0.1, end="raise")
        return story

    assert raised(0.0, 1.0).run(300, 1.2, 1.3).violations(RAISES, 300) == {}
    assert raised(0.0, 1.0).run(300, 0.2, 0.3).violations(RAISES, 300) == {"out of order": 2}


def test_killing_poison_is_finished_at_its_last_death() -> None:
    story = Story().buries(KILLS).run(KILLS, 0.0, 0.1, end="die", taken_back_s=0.2)

    assert story.run(KILLS, 1.0, 1.1, pid=2, end="die").run(481, 1.2, 1.3, pid=3).violations(KILLS, 481) == {}


def test_poison_ends_all_runs_of_its_process() -> None:
    story = Story().buries(KILLS).run(481, 0.0, keys=("chat:8",), taken_back_s=0.3)
    story.run(KILLS, 0.0, 0.2, end="die", taken_back_s=0.3)

    assert story.run(481, 0.5, 0.6, keys=("chat:8",), pid=2).violations(KILLS, 481) == {}


def test_buried_innocent_is_a_violation() -> None:
    assert Story().run(1, 0.0, 0.1, end="raise").buries(1).violations(1) == {"lost": 1, "innocents buried": 1}


def test_unburied_poison_is_a_violation() -> None:
    assert Story().run(RAISES, 0.0, 0.1, end="raise").violations(RAISES) == {"poison not buried": 1}


def test_poison_may_die_before_its_first_line() -> None:
    assert Story().buries(KILLS).violations(KILLS) == {}


def test_session_counts_each_update_once() -> None:
    story = Story().buries(RAISES).run(1, 0.0, taken_back_s=0.6).kills(1, 0.5).run(1, 1.0, 2.0, pid=2)
    story.run(2, 2.0, 3.0).run(RAISES, 3.0, 3.1, end="raise").run(3, 0.0, 0.1, keys=("chat:8", "user:9"))
    right = {"chat:7": 2, "chat:8": 1}

    for sessions, wrong in ((right, 0), ({"chat:7": 3, "chat:8": 1}, 1), ({"chat:7": 2}, 1), ({**right, "x": 1}, 1)):
        story.sessions = sessions
        assert len(story.judged(1, 2, 3, RAISES).violations["sessions wrong"]) == wrong


def test_terminated_update_is_not_lost() -> None:
    story = Story().run(1, 0, 1, end="raise", taken_back_s=1).run(2, 2, 3).buries(1)
    assert story.violations(1, 2) == {"innocents buried": 1, "lost": 1, "out of order": 1}
    story.faults.append(InjectedFault(0.5, "terminate", "updates", updates=(1,)))
    assert story.violations(1, 2) == {}
