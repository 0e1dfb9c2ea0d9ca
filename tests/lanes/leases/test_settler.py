"""The settler's books: what is held, what Redis has to hear, and how much room there is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from chatlanes.lanes.leases import settler as settler_module
from chatlanes.lanes.leases.books import Pool
from chatlanes.lanes.leases.heartbeat import LeaseKeeper
from chatlanes.lanes.leases.report_channel import DONE, GONE, RETURNED, STARTED
from chatlanes.lanes.leases.settler import Settler
from chatlanes.lanes.protocol.replies import Leased
from chatlanes.lanes.runtime import clock


class Clock:
    """Time that only passes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(clock, "now_s", lambda: self.now)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def settler(time: Clock) -> Iterator[Settler]:
    made = Settler(lease_s=15)
    made.room.pool = Pool(slots=lambda: 4, forks=True, spare=0)
    yield made
    made.handoff.close()


def take(settler: Settler, *ids: str, died: int = 0, suspects_wait: bool = False) -> list[str]:
    """A turn brings these; gives their tags."""
    leased = [Leased(each, "1", "q", died, 0, False, 0.0, None, None, b"") for each in ids]
    return [held.tag for held in settler.turn_ended(leased, clock.now_s(), suspects_wait=suspects_wait)]


def run(settler: Settler, time: Clock, count: int, each_s: float) -> None:
    """So many messages, one after the other."""
    for number in range(count):
        [tag] = take(settler, f"m{number}")
        settler.claim(tag, starts=True)
        time.now += each_s
        settler.done(tag)


# -- room


def test_in_a_backlog_there_is_room_for_more_and_a_turn_can_wait_while_half_of_it_is_here(
    settler: Settler, time: Clock
) -> None:
    settler.room.pool = Pool(slots=lambda: 4, forks=True, spare=15)
    # Given runs of 5 ms
    run(settler, time, 100, each_s=0.005)
    usual = settler.room.size()
    assert usual == pytest.approx(4 + 16, abs=1)
    assert not settler.room.can_wait()
    # When a turn brings what has waited for a second, and leaves others
    leased = [Leased(f"w{n}", "1", "q", 0, 0, False, 1.0, None, None, b"") for n in range(usual)]
    taken = settler.turn_ended(leased, time.now, suspects_wait=False, more=True)
    # Then there is room for the most that it may hold, and while that is much, it asks for it
    assert settler.room.size() == 4 + 60 - usual
    assert not settler.room.can_wait()
    more = settler.turn_ended(
        [leased[0]._replace(id=f"v{n}") for n in range(settler.room.size())], time.now, suspects_wait=False, more=True
    )
    assert settler.room.can_wait()
    # And again when what is left starts within 20 ms
    for held in (taken + more)[:45]:
        assert settler.room.can_wait()
        settler.claim(held.tag, starts=True)
        time.now += 0.005
        settler.done(held.tag)
    assert not settler.room.can_wait()


def test_ordinary_tasks_are_no_work_that_a_turn_can_wait_for(settler: Settler, time: Clock) -> None:
    # Given a worker in a backlog, whose slots others have taken, and more of them wait
    settler.room.pool = Pool(slots=lambda: 4, forks=False, spare=15)
    run(settler, time, 100, each_s=0.005)
    leased = [Leased("a", "1", "q", 0, 0, False, 1.0, None, None, b"")]
    [held] = settler.turn_ended(leased, time.now, suspects_wait=False, more=True)
    assert settler.room.size(occupied=64) == 0
    # When it has ended what it held, then it says so at once, and asks as soon as there is room
    settler.done(held.tag)
    assert not settler.room.can_wait()
    assert settler.room.size(occupied=0) > 0
    assert not settler.room.can_wait()


def test_without_a_pool_no_turn_waits(settler: Settler) -> None:
    """Somebody's own consumer, which has a prefetch count."""
    settler.room.pool = None
    leased = [Leased("a", "1", "q", 0, 0, False, 1.0, None, None, b"")]
    settler.turn_ended(leased, clock.now_s(), suspects_wait=False, more=True)
    assert not settler.room.can_wait()


def test_a_suspect_in_a_backlog_is_waited_for_and_asked_for(settler: Settler, time: Clock) -> None:
    # Given a worker with much in hand in a backlog, in which a suspect waits for one that holds nothing
    settler.room.pool = Pool(slots=lambda: 2, forks=True, spare=15)
    run(settler, time, 200, each_s=0.005)
    leased = [Leased(f"w{n}", "1", "q", 0, 0, False, 1.0, None, None, b"") for n in range(20)]
    taken = settler.turn_ended(leased, time.now, suspects_wait=True, more=True)
    # Then it asks for nothing, but says what is done, which tells it nothing of suspects
    assert settler.room.size() == 0
    for held in taken:
        assert not settler.room.can_wait()
        settler.done(held.tag)
        settler.turn_ended([], time.now, suspects_wait=None, more=True)
        assert settler.room.size() == (held is taken[-1])
    # And asks for the suspect when it holds nothing
    assert settler.room.size() == 1
    assert not settler.room.can_wait()


def test_room_is_the_slots_that_nothing_takes(settler: Settler) -> None:
    assert settler.room.size() == 4
    take(settler, "a", "b")
    assert settler.room.size() == 2
    assert settler.room.size(occupied=1) == 1
    take(settler, "c", "d", "e")
    assert settler.room.size() == 0


def test_room_comes_back_when_a_message_leaves_the_books(settler: Settler) -> None:
    done, gone, back, buried = take(settler, "a", "b", "c", "d")
    settler.done(done)
    settler.gone(gone)
    settler.give_back(back)
    settler.bury(buried, {})
    assert settler.room.size() == 4
    assert settler.holding() == 0


def test_without_a_pool_there_is_no_room(settler: Settler) -> None:
    settler.room.pool = None
    assert settler.room.size() == 0


def test_a_suspect_is_held_alone(settler: Settler) -> None:
    [tag] = take(settler, "suspect", died=2)
    assert settler.room.size() == 0
    settler.done(tag)
    assert settler.room.size() == 4


def test_a_suspect_that_waits_gets_an_empty_worker_and_one_place(settler: Settler) -> None:
    [tag] = take(settler, "a", suspects_wait=True)
    assert settler.room.size() == 0
    settler.done(tag)
    assert settler.room.size() == 1


def test_quick_runs_make_room_for_a_reserve(settler: Settler, time: Clock) -> None:
    settler.room.pool = Pool(slots=lambda: 4, forks=True, spare=15)
    run(settler, time, 200, each_s=0.001)
    assert settler.room.size() > 4


# -- claims


def test_what_was_given_back_cannot_be_claimed(settler: Settler) -> None:
    [tag] = take(settler, "a")
    assert settler.give_back_unclaimed() == 1
    assert not settler.claim(tag, starts=True)
    assert list(settler.ledger.to_keeper().releases) == [("a", "1", False)]


def test_what_was_claimed_is_not_given_back_as_unclaimed(settler: Settler) -> None:
    [tag] = take(settler, "a")
    assert settler.claim(tag, starts=False)
    assert settler.give_back_unclaimed() == 0
    assert settler.holds(tag)


def test_nothing_begins_after_its_lease(settler: Settler, time: Clock) -> None:
    [tag] = take(settler, "a")
    time.now += 15
    assert not settler.claim(tag, starts=True)
    assert settler.holding() == 0


def test_what_a_busy_child_did_not_start_in_time_is_taken_back(settler: Settler, time: Clock) -> None:
    # Given four messages in the pipes of busy children, which start them by 1000.05 or not at all
    early, late, returned, _ = tags = take(settler, "early", "late", "returned", "silent")
    for tag in tags:
        assert settler.claim(tag, starts=False, start_by_s=1000.05)
    # When one is started in time, another one a moment too late, and a third is refused by its child
    time.now = 1000.04
    settler.handoff.report(STARTED, early)
    time.now = 1000.051
    assert settler.give_back_unclaimed() == settler.give_back_waiting(longer_than_s=0) == 0
    settler.handoff.report(STARTED, late)
    settler.handoff.report(STARTED, returned)
    settler.handoff.report(RETURNED, returned)
    settler.read_handoff()
    assert list(settler.ledger.to_keeper().releases) == [("returned", "1", False)]
    # Then the two that have not begun go back, uncounted, as soon as nobody can start them
    assert settler.give_back_waiting(longer_than_s=0) == 0
    time.now = 1000.06
    assert settler.give_back_waiting(longer_than_s=0) == 2
    assert list(settler.ledger.to_keeper().releases) == [("late", "1", False), ("silent", "1", False)]
    assert not settler.claim(late, starts=False)
    # And the one that runs stays
    assert settler.holds(early)
    settler.give_back(early, died=True)
    assert list(settler.ledger.to_keeper().releases) == [("early", "1", True)]


def test_a_renewed_lease_can_be_claimed_later(settler: Settler, time: Clock) -> None:
    [tag] = take(settler, "a")
    time.now += 10
    settler.ledger.renewed([("a", "1")], [], clock.now_s())
    time.now += 10
    assert settler.claim(tag, starts=True)


def test_what_waits_behind_a_slow_one_is_given_back_when_it_waited_too_long(settler: Settler, time: Clock) -> None:
    settler.room.pool = Pool(slots=lambda: 1, forks=False, spare=15)
    [slow, *_] = take(settler, "slow", "old")
    settler.claim(slow, starts=True)
    time.now += 0.06
    take(settler, "new")
    assert settler.give_back_waiting(longer_than_s=0.05) == 1
    assert [each[0] for each in settler.ledger.to_keeper().releases] == ["old"]


def test_what_has_a_slot_stays_however_late_it_starts(settler: Settler, time: Clock) -> None:
    # A busy machine: given back, it would come again and be late again.
    settler.room.pool = Pool(slots=lambda: 2, forks=False, spare=0)
    take(settler, "a", "b")
    time.now += 5
    assert settler.give_back_waiting(longer_than_s=0.05) == 0


def test_a_slot_that_runs_something_else_is_not_free(settler: Settler, time: Clock) -> None:
    settler.room.pool = Pool(slots=lambda: 2, forks=False, spare=0)
    take(settler, "a", "b")
    settler.room.size(occupied=1)
    time.now += 0.06
    assert settler.give_back_waiting(longer_than_s=0.05) == 1
    assert [each[0] for each in settler.ledger.to_keeper().releases] == ["b"]


def test_only_one_queue_is_given_back(settler: Settler) -> None:
    take(settler, "a")
    assert settler.give_back_unclaimed(queue="another") == 0
    assert settler.give_back_unclaimed(queue="q") == 1


# -- deaths


def test_a_start_that_was_reported_and_not_yet_read_counts(settler: Settler) -> None:
    # The child said that it starts, and died: both may arrive together.
    [tag] = take(settler, "a")
    settler.claim(tag, starts=False)
    settler.handoff.report(STARTED, tag)
    settler.give_back(tag, died=True)
    assert list(settler.ledger.to_keeper().releases) == [("a", "1", True)]


@pytest.mark.parametrize("began", [True, False])
def test_a_death_counts_when_the_message_had_begun(settler: Settler, began: bool) -> None:
    [tag] = take(settler, "a")
    settler.claim(tag, starts=False)
    if began:
        settler.handoff.report(STARTED, tag)
        settler.read_handoff()
    settler.give_back(tag, died=True)
    assert list(settler.ledger.to_keeper().releases) == [("a", "1", began)]


# -- times


def told(settler: Settler) -> dict[str, int]:
    """What a turn takes along of the times, without the sums."""
    return {field: n for field, n in settler.plan_times().items() if " sum " not in field}


@pytest.mark.parametrize("is_reported", [True, False], ids=["a child", "a thread"])
def test_waits_end_at_the_start_and_runs_at_their_own_end(settler: Settler, time: Clock, is_reported: bool) -> None:
    # Given a message that waited for 4 s until it was handed out, and 3 s more until its handler began
    leased = Leased("a", "1", "shop.0", 0, 0, False, 4.0, None, None, b"")
    [held] = settler.turn_ended([leased], time.now - 0.5, suspects_wait=False)
    time.now += 2.5
    settler.claim(held.tag, starts=not is_reported)
    if is_reported:
        settler.handoff.report(STARTED, held.tag)
    # When it has run for 12 s, and nobody looks for a minute
    time.now += 12
    settler.handoff.report(DONE, held.tag)
    time.now += 60
    settler.read_handoff()
    # Then each has its own time, told once
    assert settler.plan_times() == {
        "wait 10 shop": 1,
        "wait sum shop": 7_000_000,
        "run 15 shop": 1,
        "run sum shop": 12_000_000,
    }
    settler.turn_ended([], 0, suspects_wait=False)
    time.now += 1
    assert told(settler) == {}


@pytest.mark.parametrize(
    ("failed", "died", "is_parked", "alive_s", "times"),
    [
        (0, 0, False, None, {"wait 5 q": 1}),
        (1, 0, False, None, {}),
        (0, 0, True, None, {}),
        (0, 1, False, None, {}),
        (0, 1, False, 16.0, {"recovery 20 q": 1}),
    ],
)
def test_the_wait_is_that_of_the_first_run_and_a_death_has_its_own(
    settler: Settler, failed: int, died: int, is_parked: bool, alive_s: float | None, times: dict[str, int]
) -> None:
    leased = Leased("a", "1", "q", died, failed, is_parked, 4.0, None, alive_s, b"")
    [held] = settler.turn_ended([leased], clock.now_s(), suspects_wait=False)
    for _ in range(2):
        settler.claim(held.tag, starts=True)
    assert told(settler) == times


def test_what_is_evicted_ran_until_then_and_what_was_lost_ran_in_vain(settler: Settler, time: Clock) -> None:
    evicted, lost = take(settler, "a", "b", died=1)
    for tag in (evicted, lost):
        settler.claim(tag, starts=True)
    time.now += 2
    settler.evict(evicted, None, {})
    settler.ledger.renewed([("b", "1")], ["b"], time.now)
    time.now += 60
    settler.done(evicted)
    settler.done(lost)
    assert told(settler) == {"run 2.5 q": 1, "lost runs q": 1}


def test_times_of_a_turn_that_failed_go_with_a_later_one_and_none_too_often(settler: Settler, time: Clock) -> None:
    one, other = take(settler, "a", "b")
    settler.claim(one, starts=True)
    assert told(settler) == {"wait 0.001 q": 1}
    settler.claim(other, starts=True)
    settler.turn_failed()
    assert told(settler) == {}
    time.now += 0.2
    assert told(settler) == {"wait 0.001 q": 2}
    settler.turn_ended([], 0, suspects_wait=False)
    # Without turns the lease keeper tells them, and they are put back when it cannot
    settler.done(one)
    assert settler.ledger.to_keeper().times["run 0.25 q"] == 1
    settler.ledger.put_back()
    assert settler.ledger.has_times()


# -- what Redis hears


def test_a_settle_stays_in_the_books_until_its_turn_has_ended(settler: Settler) -> None:
    [tag] = take(settler, "a")
    settler.done(tag)
    assert settler.plan_turn() == [("a", "1")]
    assert not settler.ledger.has_settles()
    assert settler.ledger.leases() == [("a", "1")]
    settler.turn_failed()
    assert settler.must_reconcile
    assert settler.plan_turn() == [("a", "1")]
    settler.turn_ended([], 0, suspects_wait=False)
    assert settler.ledger.leases() == []
    assert settler.plan_turn() == []


def test_a_turn_that_cannot_have_run_leaves_nothing_to_reconcile(settler: Settler) -> None:
    settler.turn_failed(may_have_run=False)
    assert not settler.must_reconcile


def test_done_twice_is_told_once(settler: Settler) -> None:
    [tag] = take(settler, "a")
    settler.handoff.report(DONE, tag)
    settler.read_handoff()
    settler.done(tag)
    assert settler.plan_turn() == [("a", "1")]


def test_what_was_retried_is_not_settled(settler: Settler) -> None:
    [tag] = take(settler, "a")
    settler.handoff.report(GONE, tag)
    settler.read_handoff()
    settler.done(tag)
    assert settler.plan_turn() == []


def test_what_could_not_be_told_is_told_first_the_next_time(settler: Settler) -> None:
    first, second, third, fourth, fifth, sixth = take(settler, *"abcdef")
    settler.done(first)
    settler.give_back(second)
    settler.bury(third, {})
    settler.ledger.to_keeper()
    settler.done(fourth)
    settler.give_back(fifth)
    settler.bury(sixth, {})
    settler.ledger.put_back()
    again = settler.ledger.to_keeper()
    assert [each[0] for each in again.settles] == ["a", "d"]
    assert [each[0] for each in again.releases] == ["b", "e"]
    assert [each[0] for each in again.burials] == ["c", "f"]
    assert not settler.ledger.has_untold()


def test_releases_and_burials_are_urgent_and_settles_wait_for_a_turn(settler: Settler) -> None:
    done, back, buried = take(settler, "a", "b", "c")
    settler.done(done)
    assert settler.ledger.has_untold()
    assert not settler.ledger.has_urgent()
    settler.give_back(back)
    assert settler.ledger.has_urgent()
    settler.ledger.to_keeper()
    settler.bury(buried, {})
    assert settler.ledger.has_urgent()


# -- leases


def test_a_lease_that_was_lost_while_it_ran_keeps_its_slot_and_is_not_settled(settler: Settler) -> None:
    [tag] = take(settler, "a")
    settler.claim(tag, starts=True)
    assert settler.ledger.renewed([("a", "1")], ["a"], clock.now_s()) == ["a"]
    assert not settler.holds(tag)
    assert settler.ledger.leases() == []
    assert settler.room.size() == 3
    settler.done(tag)
    assert settler.room.size() == 4
    assert not settler.ledger.has_untold()


def test_a_lease_that_was_lost_before_it_began_is_forgotten(settler: Settler) -> None:
    [tag] = take(settler, "a")
    assert settler.ledger.renewed([("a", "1")], ["a"], clock.now_s()) == []
    assert not settler.claim(tag, starts=True)
    assert settler.room.size() == 4


def test_what_did_not_begin_within_a_lease_is_given_back_uncounted(settler: Settler, time: Clock) -> None:
    dropped, running, told, _ = take(settler, "dropped", "running", "told", "never given to the pool")
    settler.claim(dropped, starts=False)
    settler.claim(running, starts=True)
    settler.claim(told, starts=False)
    settler.handoff.report(STARTED, told)  # and nobody has read it yet
    time.now += 15
    assert settler.give_back_forgotten() == 0
    time.now += 1
    assert settler.give_back_forgotten() == 2
    assert settler.ledger.leases() == [("running", "1"), ("told", "1")]
    assert [(each[0], each[2]) for each in settler.ledger.to_keeper().releases] == [
        ("dropped", False),
        ("never given to the pool", False),
    ]
    assert not settler.claim(dropped, starts=True)


def test_what_redis_has_not_been_told_is_ours_until_it_has(settler: Settler) -> None:
    # A reconcile meanwhile would let it run again, and what is said of it would come too late.
    done, back, buried, evicted, _ = take(settler, "done", "back", "buried", "evicted", "held")
    settler.done(done)
    settler.give_back(back)
    settler.bury(buried, {})
    settler.evict(evicted, 0, {})
    everything = {"done", "back", "buried", "evicted", "held"}
    assert set(settler.ledger.ours()) == everything
    settler.ledger.to_keeper()
    assert set(settler.ledger.ours()) == everything
    settler.ledger.told()
    assert settler.ledger.ours() == ["held"]


def test_an_old_fence_does_not_touch_a_new_hand_out(settler: Settler) -> None:
    take(settler, "a")
    settler.done("a#0")
    settler.give_back("a#0")
    assert settler.holds("a#1")
    assert not settler.ledger.has_untold()


def test_it_wakes_the_loop_that_takes_turns_or_else_the_keeper(settler: Settler) -> None:
    tags = take(settler, "a", "b")
    settler.done(tags[0])
    assert settler.outbox_signal.wait(0), "nobody takes turns: the lease keeper settles"
    settler.consumers = 1
    settler.done(tags[1])
    assert not settler.outbox_signal.wait(0)
    assert settler_module.os.read(settler.handoff.reader, 10) == b"\n"


# -- evictions


def test_what_is_evicted_is_refused_at_once_and_keeps_its_slot_until_it_ends(settler: Settler) -> None:
    tag, other = take(settler, "a", "b")
    settler.claim(tag, starts=True)
    assert settler.evict(tag, 500, {"type": "late"})
    assert (settler.holds(tag), settler.ledger.leases(), settler.room.size()) == (False, [("b", "1")], 2)
    assert settler.ledger.has_urgent()
    # What its handler says when it ends is not told to Redis
    settler.done(tag)
    assert settler.room.size() == 3
    outbox = settler.ledger.to_keeper()
    assert list(outbox.retries) == [("a", "1", 500, {"type": "late"})]
    assert [*outbox.settles, *outbox.burials, *outbox.releases] == []
    assert settler.holds(other)


def test_an_eviction_without_a_delay_buries(settler: Settler) -> None:
    [tag] = take(settler, "a")
    assert settler.evict(tag, None, {"type": "late"})
    assert list(settler.ledger.to_keeper().burials) == [("a", "1", {"type": "late"})]


def test_what_is_no_longer_held_cannot_be_evicted(settler: Settler) -> None:
    done, lost = take(settler, "a", "b")
    for tag in (done, lost):
        settler.claim(tag, starts=True)
    settler.done(done)
    settler.ledger.renewed([("b", "1")], ["b"], clock.now_s())
    for tag in (done, lost, "unknown#1"):
        assert not settler.evict(tag, 0, {})
    assert not settler.ledger.has_urgent()


def test_evictions_that_could_not_be_told_are_told_again(settler: Settler) -> None:
    for tag in take(settler, "a", "b"):
        settler.evict(tag, 0, {})
    settler.ledger.to_keeper()
    settler.ledger.put_back()
    assert [each[0] for each in settler.ledger.to_keeper().retries] == ["a", "b"]


def test_no_suspect_waits_for_a_handler_that_may_never_end(settler: Settler) -> None:
    # Given a handler that was evicted, and a suspect that wants to be alone
    [endless] = take(settler, "endless", suspects_wait=True)
    settler.claim(endless, starts=True)
    assert (settler.room.size(), settler.leased()) == (0, 1)
    settler.evict(endless, 0, {})
    # Then it gets its place
    assert (settler.room.size(), settler.leased()) == (1, 0)
    settler.room.pool = Pool(slots=lambda: 1, forks=False, spare=0)
    assert settler.room.size() == 0


def test_nobody_waits_for_a_suspect_that_was_evicted(settler: Settler) -> None:
    [suspect] = take(settler, "suspect", died=2)
    settler.evict(suspect, 0, {})
    assert settler.room.size() == 3
    settler.done(suspect)
    assert settler.room.size() == 4


def test_a_settle_that_is_being_told_stays_in_the_books(settler: Settler) -> None:
    # A reconcile meanwhile would take it for one whose hand-out never arrived, and let it run again.
    [tag] = take(settler, "a")
    settler.done(tag)
    settler.ledger.to_keeper()
    assert settler.ledger.leases() == [("a", "1")]
    settler.ledger.told()
    assert settler.ledger.leases() == []


def test_it_wakes_the_loop_once_until_it_has_gone_round(settler: Settler, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a loop that has been woken
    settler.consumers = 1
    *many, during, after = take(settler, "a", "b", "c", "d", "e")
    for tag in many:
        settler.done(tag)
    read = settler.handoff.read
    # When one more settles while the loop reads that
    monkeypatch.setattr(settler.handoff, "read", lambda: settler.done(during) or read())
    settler.read_handoff()
    # Then one wake was all there was, and what settles from now on wakes it again
    with pytest.raises(BlockingIOError):
        settler_module.os.read(settler.handoff.reader, 1)
    settler.done(after)
    assert settler_module.os.read(settler.handoff.reader, 10) == b"\n"
    assert len(settler.plan_turn()) == 5


@pytest.mark.parametrize("ends", ["is answered", "is lost", "takes long"])
def test_it_does_not_wake_a_loop_that_a_turn_wakes_anyway(ends: str, settler: Settler, time: Clock) -> None:
    # Given a turn under way
    settler.consumers = 1
    during, after = take(settler, "a", "b")
    settler.plan_turn()
    # When something settles meanwhile
    settler.done(during)
    # Then its answer brings the loop round
    with pytest.raises(BlockingIOError):
        settler_module.os.read(settler.handoff.reader, 1)
    # When there is nothing any more, or not soon, that does
    if ends == "is answered":
        settler.turn_ended([], time.now, suspects_wait=False)
    elif ends == "is lost":
        settler.turn_failed()
    else:
        time.now += settler_module.ANSWERED_WITHIN_S
    settler.done(after)
    # Then what settles wakes it
    assert settler_module.os.read(settler.handoff.reader, 10) == b"\n"


def test_the_lease_keeper_tells_what_is_done_when_no_turn_has_come_for_long(settler: Settler, time: Clock) -> None:
    keeper = LeaseKeeper(settler, Redis)
    settler.consumers = 1
    patience_s = settler.room.patience_s
    # Given turns that follow each other, with something done before each of them
    for tag in take(settler, "a", "b", "c"):
        settler.done(tag)
        assert not keeper._must_tell(time.now)
        time.now += 0.6 * patience_s
        assert not keeper._must_tell(time.now)
        assert settler.plan_turn()
        settler.turn_ended([], time.now, suspects_wait=False)
    # When a loop is held up, then the keeper tells
    settler.done(*take(settler, "d"))
    assert not keeper._must_tell(time.now)
    time.now += 1.1 * patience_s
    assert keeper._must_tell(time.now)
