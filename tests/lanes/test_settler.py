"""The settler's books: what is held, what Redis has to hear, and how much room there is."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from redis import Redis

from chatlanes.lanes.leases import wakeups as wakeups_module
from chatlanes.lanes.leases.flusher import AckFlusher
from chatlanes.lanes.leases.in_flight import InFlight
from chatlanes.lanes.leases.prefetch import Pool
from chatlanes.lanes.leases.report_channel import DONE, GONE, RELEASED, STARTED
from chatlanes.lanes.protocol.replies import Leased
from chatlanes.lanes.protocol.store import Store
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
def settler(time: Clock) -> Iterator[InFlight]:
    made = InFlight(lease_s=15)
    made.capacity.use_pool(Pool(slots=lambda: 4, forks=True, spare=0))
    yield made
    made.channel.close()


def take(settler: InFlight, *ids: str, died: int = 0, suspects_wait: bool = False) -> list[str]:
    """A turn brings these; gives their tags."""
    leased = [Leased(each, "1", "q", died, 0, False, 0.0, None, None, b"") for each in ids]
    return [held.tag for held in settler.finish_fetch(leased, clock.now_s(), suspects_wait=suspects_wait)]


def run(settler: InFlight, time: Clock, count: int, each_s: float) -> None:
    """So many messages, one after the other."""
    for number in range(count):
        [tag] = take(settler, f"m{number}")
        settler.claim(tag, starts=True)
        time.now += each_s
        settler.done(tag)


# -- room


def test_in_a_backlog_there_is_room_for_more_and_a_turn_can_wait_while_half_of_it_is_here(
    settler: InFlight, time: Clock
) -> None:
    settler.capacity.use_pool(Pool(slots=lambda: 4, forks=True, spare=15))
    # Given runs of 5 ms
    run(settler, time, 100, each_s=0.005)
    usual = settler.capacity.size()
    assert usual == pytest.approx(4 + 16, abs=1)
    assert not settler.capacity.can_wait()
    # When a turn brings what has waited for a second, and leaves others
    leased = [Leased(f"w{n}", "1", "q", 0, 0, False, 1.0, None, None, b"") for n in range(usual)]
    taken = settler.finish_fetch(leased, time.now, suspects_wait=False, more=True)
    # Then there is room for the most that it may hold, and while that is much, it asks for it
    assert settler.capacity.size() == 4 + 60 - usual
    assert not settler.capacity.can_wait()
    more = settler.finish_fetch(
        [leased[0]._replace(id=f"v{n}") for n in range(settler.capacity.size())],
        time.now,
        suspects_wait=False,
        more=True,
    )
    assert settler.capacity.can_wait()
    # And again when what is left starts within 20 ms
    for held in (taken + more)[:45]:
        assert settler.capacity.can_wait()
        settler.claim(held.tag, starts=True)
        time.now += 0.005
        settler.done(held.tag)
    assert not settler.capacity.can_wait()


def test_ordinary_tasks_are_no_work_that_a_turn_can_wait_for(settler: InFlight, time: Clock) -> None:
    # Given a worker in a backlog, whose slots others have taken, and more of them wait
    settler.capacity.use_pool(Pool(slots=lambda: 4, forks=False, spare=15))
    run(settler, time, 100, each_s=0.005)
    leased = [Leased("a", "1", "q", 0, 0, False, 1.0, None, None, b"")]
    [held] = settler.finish_fetch(leased, time.now, suspects_wait=False, more=True)
    assert settler.capacity.size(occupied=64) == 0
    # When it has ended what it held, then it says so at once, and asks as soon as there is room
    settler.done(held.tag)
    assert not settler.capacity.can_wait()
    assert settler.capacity.size(occupied=0) > 0
    assert not settler.capacity.can_wait()


def test_without_a_pool_no_turn_waits(settler: InFlight) -> None:
    """Somebody's own consumer, which has a prefetch count."""
    settler.capacity.use_pool(None)
    leased = [Leased("a", "1", "q", 0, 0, False, 1.0, None, None, b"")]
    settler.finish_fetch(leased, clock.now_s(), suspects_wait=False, more=True)
    assert not settler.capacity.can_wait()


def test_a_suspect_in_a_backlog_is_waited_for_and_asked_for(settler: InFlight, time: Clock) -> None:
    # Given a worker with much in hand in a backlog, in which a suspect waits for one that holds nothing
    settler.capacity.use_pool(Pool(slots=lambda: 2, forks=True, spare=15))
    run(settler, time, 200, each_s=0.005)
    leased = [Leased(f"w{n}", "1", "q", 0, 0, False, 1.0, None, None, b"") for n in range(20)]
    taken = settler.finish_fetch(leased, time.now, suspects_wait=True, more=True)
    # Then it asks for nothing, but says what is done, which tells it nothing of suspects
    assert settler.capacity.size() == 0
    for held in taken:
        assert not settler.capacity.can_wait()
        settler.done(held.tag)
        settler.finish_fetch([], time.now, suspects_wait=None, more=True)
        assert settler.capacity.size() == (held is taken[-1])
    # And asks for the suspect when it holds nothing
    assert settler.capacity.size() == 1
    assert not settler.capacity.can_wait()


def test_room_is_the_slots_that_nothing_takes(settler: InFlight) -> None:
    assert settler.capacity.size() == 4
    take(settler, "a", "b")
    assert settler.capacity.size() == 2
    assert settler.capacity.size(occupied=1) == 1
    take(settler, "c", "d", "e")
    assert settler.capacity.size() == 0


def test_room_comes_back_when_a_message_leaves_the_books(settler: InFlight) -> None:
    done, gone, back, buried = take(settler, "a", "b", "c", "d")
    settler.done(done)
    settler.reports.send(GONE, gone)
    settler.release(back)
    settler.bury(buried, {})
    assert settler.capacity.size() == 4
    assert settler.holding() == 0


def test_without_a_pool_there_is_no_room(settler: InFlight) -> None:
    settler.capacity.use_pool(None)
    assert settler.capacity.size() == 0


def test_a_suspect_is_held_alone(settler: InFlight) -> None:
    [tag] = take(settler, "suspect", died=2)
    assert settler.capacity.size() == 0
    settler.done(tag)
    assert settler.capacity.size() == 4


def test_a_suspect_that_waits_gets_an_empty_worker_and_one_place(settler: InFlight) -> None:
    [tag] = take(settler, "a", suspects_wait=True)
    assert settler.capacity.size() == 0
    settler.done(tag)
    assert settler.capacity.size() == 1


def test_quick_runs_make_room_for_a_reserve(settler: InFlight, time: Clock) -> None:
    settler.capacity.use_pool(Pool(slots=lambda: 4, forks=True, spare=15))
    run(settler, time, 200, each_s=0.001)
    assert settler.capacity.size() > 4


# -- claims


def test_what_was_given_back_cannot_be_claimed(settler: InFlight) -> None:
    [tag] = take(settler, "a")
    assert settler.release_unclaimed() == 1
    assert not settler.claim(tag, starts=True)
    assert list(settler.pending_acks.start_flush().releases) == [("a", "1", False)]


def test_what_was_claimed_is_not_given_back_as_unclaimed(settler: InFlight) -> None:
    [tag] = take(settler, "a")
    assert settler.claim(tag, starts=False)
    assert settler.release_unclaimed() == 0
    assert settler.holds(tag)


def test_nothing_begins_after_its_lease(settler: InFlight, time: Clock) -> None:
    [tag] = take(settler, "a")
    time.now += 15
    assert not settler.claim(tag, starts=True)
    assert settler.holding() == 0


def test_what_a_busy_child_did_not_start_in_time_is_taken_back(settler: InFlight, time: Clock) -> None:
    # Given four messages in the pipes of busy children, which start them by 1000.05 or not at all
    early, late, returned, _ = tags = take(settler, "early", "late", "returned", "silent")
    for tag in tags:
        assert settler.claim(tag, starts=False, start_by_s=1000.05)
    # When one is started in time, another one a moment too late, and a third is refused by its child
    time.now = 1000.04
    settler.channel.report(STARTED, early)
    time.now = 1000.051
    assert settler.release_unclaimed() == settler.release_waiting(longer_than_s=0) == 0
    settler.channel.report(STARTED, late)
    settler.channel.report(STARTED, returned)
    settler.channel.report(RELEASED, returned)
    settler.reports.read()
    assert list(settler.pending_acks.start_flush().releases) == [("returned", "1", False)]
    # Then the two that have not begun go back, uncounted, as soon as nobody can start them
    assert settler.release_waiting(longer_than_s=0) == 0
    time.now = 1000.06
    assert settler.release_waiting(longer_than_s=0) == 2
    assert list(settler.pending_acks.start_flush().releases) == [("late", "1", False), ("silent", "1", False)]
    assert not settler.claim(late, starts=False)
    # And the one that runs stays
    assert settler.holds(early)
    settler.release(early, died=True)
    assert list(settler.pending_acks.start_flush().releases) == [("early", "1", True)]


def test_a_renewed_lease_can_be_claimed_later(settler: InFlight, time: Clock) -> None:
    [tag] = take(settler, "a")
    time.now += 10
    settler.renewed([("a", "1")], [], clock.now_s())
    time.now += 10
    assert settler.claim(tag, starts=True)


def test_what_waits_behind_a_slow_one_is_given_back_when_it_waited_too_long(settler: InFlight, time: Clock) -> None:
    settler.capacity.use_pool(Pool(slots=lambda: 1, forks=False, spare=15))
    [slow, *_] = take(settler, "slow", "old")
    settler.claim(slow, starts=True)
    time.now += 0.06
    take(settler, "new")
    assert settler.release_waiting(longer_than_s=0.05) == 1
    assert [each[0] for each in settler.pending_acks.start_flush().releases] == ["old"]


def test_what_has_a_slot_stays_however_late_it_starts(settler: InFlight, time: Clock) -> None:
    # A busy machine: given back, it would come again and be late again.
    settler.capacity.use_pool(Pool(slots=lambda: 2, forks=False, spare=0))
    take(settler, "a", "b")
    time.now += 5
    assert settler.release_waiting(longer_than_s=0.05) == 0


def test_a_slot_that_runs_something_else_is_not_free(settler: InFlight, time: Clock) -> None:
    settler.capacity.use_pool(Pool(slots=lambda: 2, forks=False, spare=0))
    take(settler, "a", "b")
    settler.capacity.size(occupied=1)
    time.now += 0.06
    assert settler.release_waiting(longer_than_s=0.05) == 1
    assert [each[0] for each in settler.pending_acks.start_flush().releases] == ["b"]


def test_only_one_queue_is_given_back(settler: InFlight) -> None:
    take(settler, "a")
    assert settler.release_unclaimed(queue="another") == 0
    assert settler.release_unclaimed(queue="q") == 1


# -- deaths


def test_a_start_that_was_reported_and_not_yet_read_counts(settler: InFlight) -> None:
    # The child said that it starts, and died: both may arrive together.
    [tag] = take(settler, "a")
    settler.claim(tag, starts=False)
    settler.channel.report(STARTED, tag)
    settler.release(tag, died=True)
    assert list(settler.pending_acks.start_flush().releases) == [("a", "1", True)]


@pytest.mark.parametrize("began", [True, False])
def test_a_death_counts_when_the_message_had_begun(settler: InFlight, began: bool) -> None:
    [tag] = take(settler, "a")
    settler.claim(tag, starts=False)
    if began:
        settler.channel.report(STARTED, tag)
        settler.reports.read()
    settler.release(tag, died=True)
    assert list(settler.pending_acks.start_flush().releases) == [("a", "1", began)]


# -- times


def told(settler: InFlight) -> dict[str, int]:
    """What a turn takes along of the times, without the sums."""
    return {field: n for field, n in settler.pending_acks.times_to_fetch().items() if " sum " not in field}


@pytest.mark.parametrize("is_reported", [True, False], ids=["a child", "a thread"])
def test_waits_end_at_the_start_and_runs_at_their_own_end(settler: InFlight, time: Clock, is_reported: bool) -> None:
    # Given a message that waited for 4 s until it was handed out, and 3 s more until its handler began
    leased = Leased("a", "1", "shop.0", 0, 0, False, 4.0, None, None, b"")
    [held] = settler.finish_fetch([leased], time.now - 0.5, suspects_wait=False)
    time.now += 2.5
    settler.claim(held.tag, starts=not is_reported)
    if is_reported:
        settler.channel.report(STARTED, held.tag)
    # When it has run for 12 s, and nobody looks for a minute
    time.now += 12
    settler.channel.report(DONE, held.tag)
    time.now += 60
    settler.reports.read()
    # Then each has its own time, told once
    assert settler.pending_acks.times_to_fetch() == {
        "wait 10 shop": 1,
        "wait sum shop": 7_000_000,
        "run 15 shop": 1,
        "run sum shop": 12_000_000,
    }
    settler.finish_fetch([], 0, suspects_wait=False)
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
    settler: InFlight, failed: int, died: int, is_parked: bool, alive_s: float | None, times: dict[str, int]
) -> None:
    leased = Leased("a", "1", "q", died, failed, is_parked, 4.0, None, alive_s, b"")
    [held] = settler.finish_fetch([leased], clock.now_s(), suspects_wait=False)
    for _ in range(2):
        settler.claim(held.tag, starts=True)
    assert told(settler) == times


def test_what_is_evicted_ran_until_then_and_what_was_lost_ran_in_vain(settler: InFlight, time: Clock) -> None:
    evicted, lost = take(settler, "a", "b", died=1)
    for tag in (evicted, lost):
        settler.claim(tag, starts=True)
    time.now += 2
    settler.evict(evicted, None, {})
    settler.renewed([("b", "1")], ["b"], time.now)
    time.now += 60
    settler.done(evicted)
    settler.done(lost)
    assert told(settler) == {"run 2.5 q": 1, "lost runs q": 1}


def test_times_of_a_turn_that_failed_go_with_a_later_one_and_none_too_often(settler: InFlight, time: Clock) -> None:
    one, other = take(settler, "a", "b")
    settler.claim(one, starts=True)
    assert told(settler) == {"wait 0.001 q": 1}
    settler.claim(other, starts=True)
    settler.fail_fetch()
    assert told(settler) == {}
    time.now += 0.2
    assert told(settler) == {"wait 0.001 q": 2}
    settler.finish_fetch([], 0, suspects_wait=False)
    # Without turns the lease keeper tells them, and they are put back when it cannot
    settler.done(one)
    assert settler.pending_acks.start_flush().times["run 0.25 q"] == 1
    settler.pending_acks.flush_failed()
    assert settler.pending_acks.has_times()


# -- what Redis hears


def test_a_settle_stays_in_the_books_until_its_turn_has_ended(settler: InFlight) -> None:
    [tag] = take(settler, "a")
    settler.done(tag)
    assert settler.start_fetch() == [("a", "1")]
    assert not settler.pending_acks.has_settles()
    assert settler.leases() == [("a", "1")]
    settler.fail_fetch()
    assert settler.must_reconcile
    assert settler.start_fetch() == [("a", "1")]
    settler.finish_fetch([], 0, suspects_wait=False)
    assert settler.leases() == []
    assert settler.start_fetch() == []


def test_a_turn_that_cannot_have_run_leaves_nothing_to_reconcile(settler: InFlight) -> None:
    settler.fail_fetch(may_have_run=False)
    assert not settler.must_reconcile


def test_done_twice_is_told_once(settler: InFlight) -> None:
    [tag] = take(settler, "a")
    settler.channel.report(DONE, tag)
    settler.reports.read()
    settler.done(tag)
    assert settler.start_fetch() == [("a", "1")]


def test_what_was_retried_is_not_settled(settler: InFlight) -> None:
    [tag] = take(settler, "a")
    settler.channel.report(GONE, tag)
    settler.reports.read()
    settler.done(tag)
    assert settler.start_fetch() == []


def test_what_could_not_be_told_is_told_first_the_next_time(settler: InFlight) -> None:
    first, second, third, fourth, fifth, sixth = take(settler, *"abcdef")
    settler.done(first)
    settler.release(second)
    settler.bury(third, {})
    settler.pending_acks.start_flush()
    settler.done(fourth)
    settler.release(fifth)
    settler.bury(sixth, {})
    settler.pending_acks.flush_failed()
    again = settler.pending_acks.start_flush()
    assert [each[0] for each in again.settles] == ["a", "d"]
    assert [each[0] for each in again.releases] == ["b", "e"]
    assert [each[0] for each in again.burials] == ["c", "f"]
    assert not settler.pending_acks.has_any()


def test_releases_and_burials_are_urgent_and_settles_wait_for_a_turn(settler: InFlight) -> None:
    done, back, buried = take(settler, "a", "b", "c")
    settler.done(done)
    assert settler.pending_acks.has_any()
    assert not settler.pending_acks.has_urgent()
    settler.release(back)
    assert settler.pending_acks.has_urgent()
    settler.pending_acks.start_flush()
    settler.bury(buried, {})
    assert settler.pending_acks.has_urgent()


# -- leases


def test_a_lease_that_was_lost_while_it_ran_keeps_its_slot_and_is_not_settled(settler: InFlight) -> None:
    [tag] = take(settler, "a")
    settler.claim(tag, starts=True)
    assert settler.renewed([("a", "1")], ["a"], clock.now_s()) == ["a"]
    assert not settler.holds(tag)
    assert settler.leases() == []
    assert settler.capacity.size() == 3
    settler.done(tag)
    assert settler.capacity.size() == 4
    assert not settler.pending_acks.has_any()


def test_a_lease_that_was_lost_before_it_began_is_forgotten(settler: InFlight) -> None:
    [tag] = take(settler, "a")
    assert settler.renewed([("a", "1")], ["a"], clock.now_s()) == []
    assert not settler.claim(tag, starts=True)
    assert settler.capacity.size() == 4


def test_what_did_not_begin_within_a_lease_is_given_back_uncounted(settler: InFlight, time: Clock) -> None:
    dropped, running, told, _ = take(settler, "dropped", "running", "told", "never given to the pool")
    settler.claim(dropped, starts=False)
    settler.claim(running, starts=True)
    settler.claim(told, starts=False)
    settler.channel.report(STARTED, told)  # and nobody has read it yet
    time.now += 15
    assert settler.release_overdue() == 0
    time.now += 1
    assert settler.release_overdue() == 2
    assert settler.leases() == [("running", "1"), ("told", "1")]
    assert [(each[0], each[2]) for each in settler.pending_acks.start_flush().releases] == [
        ("dropped", False),
        ("never given to the pool", False),
    ]
    assert not settler.claim(dropped, starts=True)


def test_what_redis_has_not_been_told_is_ours_until_it_has(settler: InFlight) -> None:
    # A reconcile meanwhile would let it run again, and what is said of it would come too late.
    done, back, buried, evicted, _ = take(settler, "done", "back", "buried", "evicted", "held")
    settler.done(done)
    settler.release(back)
    settler.bury(buried, {})
    settler.evict(evicted, 0, {})
    everything = {"done", "back", "buried", "evicted", "held"}
    assert set(settler.leased_ids()) == everything
    settler.pending_acks.start_flush()
    assert set(settler.leased_ids()) == everything
    settler.pending_acks.flush_answered()
    assert settler.leased_ids() == ["held"]


def test_an_old_fence_does_not_touch_a_new_hand_out(settler: InFlight) -> None:
    take(settler, "a")
    settler.done("a#0")
    settler.release("a#0")
    assert settler.holds("a#1")
    assert not settler.pending_acks.has_any()


def test_it_wakes_the_loop_that_takes_turns_or_else_the_keeper(settler: InFlight) -> None:
    tags = take(settler, "a", "b")
    settler.done(tags[0])
    assert settler.wakeups.background.wait(0), "nobody takes turns: the lease keeper settles"
    settler.wakeups.add_consumer()
    settler.done(tags[1])
    assert not settler.wakeups.background.wait(0)
    assert os.read(settler.channel.reader, 10) == b"\n"


# -- evictions


def test_what_is_evicted_is_refused_at_once_and_keeps_its_slot_until_it_ends(settler: InFlight) -> None:
    tag, other = take(settler, "a", "b")
    settler.claim(tag, starts=True)
    assert settler.evict(tag, 500, {"type": "late"})
    assert (settler.holds(tag), settler.leases(), settler.capacity.size()) == (False, [("b", "1")], 2)
    assert settler.pending_acks.has_urgent()
    # What its handler says when it ends is not told to Redis
    settler.done(tag)
    assert settler.capacity.size() == 3
    outbox = settler.pending_acks.start_flush()
    assert list(outbox.retries) == [("a", "1", 500, {"type": "late"})]
    assert [*outbox.settles, *outbox.burials, *outbox.releases] == []
    assert settler.holds(other)


def test_an_eviction_without_a_delay_buries(settler: InFlight) -> None:
    [tag] = take(settler, "a")
    assert settler.evict(tag, None, {"type": "late"})
    assert list(settler.pending_acks.start_flush().burials) == [("a", "1", {"type": "late"})]


def test_what_is_no_longer_held_cannot_be_evicted(settler: InFlight) -> None:
    done, lost = take(settler, "a", "b")
    for tag in (done, lost):
        settler.claim(tag, starts=True)
    settler.done(done)
    settler.renewed([("b", "1")], ["b"], clock.now_s())
    for tag in (done, lost, "unknown#1"):
        assert not settler.evict(tag, 0, {})
    assert not settler.pending_acks.has_urgent()


def test_evictions_that_could_not_be_told_are_told_again(settler: InFlight) -> None:
    for tag in take(settler, "a", "b"):
        settler.evict(tag, 0, {})
    settler.pending_acks.start_flush()
    settler.pending_acks.flush_failed()
    assert [each[0] for each in settler.pending_acks.start_flush().retries] == ["a", "b"]


def test_no_suspect_waits_for_a_handler_that_may_never_end(settler: InFlight) -> None:
    # Given a handler that was evicted, and a suspect that wants to be alone
    [endless] = take(settler, "endless", suspects_wait=True)
    settler.claim(endless, starts=True)
    assert (settler.capacity.size(), settler.leased()) == (0, 1)
    settler.evict(endless, 0, {})
    # Then it gets its place
    assert (settler.capacity.size(), settler.leased()) == (1, 0)
    settler.capacity.use_pool(Pool(slots=lambda: 1, forks=False, spare=0))
    assert settler.capacity.size() == 0


def test_nobody_waits_for_a_suspect_that_was_evicted(settler: InFlight) -> None:
    [suspect] = take(settler, "suspect", died=2)
    settler.evict(suspect, 0, {})
    assert settler.capacity.size() == 3
    settler.done(suspect)
    assert settler.capacity.size() == 4


def test_a_settle_that_is_being_told_stays_in_the_books(settler: InFlight) -> None:
    # A reconcile meanwhile would take it for one whose hand-out never arrived, and let it run again.
    [tag] = take(settler, "a")
    settler.done(tag)
    settler.pending_acks.start_flush()
    assert settler.leases() == [("a", "1")]
    settler.pending_acks.flush_answered()
    assert settler.leases() == []


def test_it_wakes_the_loop_once_until_it_has_gone_round(settler: InFlight, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a loop that has been woken
    settler.wakeups.add_consumer()
    *many, during, after = take(settler, "a", "b", "c", "d", "e")
    for tag in many:
        settler.done(tag)
    read = settler.channel.read
    # When one more settles while the loop reads that
    monkeypatch.setattr(settler.channel, "read", lambda: settler.done(during) or read())
    settler.reports.read()
    # Then one wake was all there was, and what settles from now on wakes it again
    with pytest.raises(BlockingIOError):
        os.read(settler.channel.reader, 1)
    settler.done(after)
    assert os.read(settler.channel.reader, 10) == b"\n"
    assert len(settler.start_fetch()) == 5


@pytest.mark.parametrize("ends", ["is answered", "is lost", "takes long"])
def test_it_does_not_wake_a_loop_that_a_turn_wakes_anyway(ends: str, settler: InFlight, time: Clock) -> None:
    # Given a turn under way
    settler.wakeups.add_consumer()
    during, after = take(settler, "a", "b")
    settler.start_fetch()
    # When something settles meanwhile
    settler.done(during)
    # Then its answer brings the loop round
    with pytest.raises(BlockingIOError):
        os.read(settler.channel.reader, 1)
    # When there is nothing any more, or not soon, that does
    if ends == "is answered":
        settler.finish_fetch([], time.now, suspects_wait=False)
    elif ends == "is lost":
        settler.fail_fetch()
    else:
        time.now += wakeups_module.ANSWERED_WITHIN_S
    settler.done(after)
    # Then what settles wakes it
    assert os.read(settler.channel.reader, 10) == b"\n"


def test_the_lease_keeper_tells_what_is_done_when_no_turn_has_come_for_long(settler: InFlight, time: Clock) -> None:
    flusher = AckFlusher(settler, Store(Redis()))
    settler.wakeups.add_consumer()
    patience_s = settler.capacity.patience_s
    # Given turns that follow each other, with something done before each of them
    for tag in take(settler, "a", "b", "c"):
        settler.done(tag)
        assert not flusher.is_due(time.now)
        time.now += 0.6 * patience_s
        assert not flusher.is_due(time.now)
        assert settler.start_fetch()
        settler.finish_fetch([], time.now, suspects_wait=False)
    # When a loop is held up, then the keeper tells
    settler.done(*take(settler, "d"))
    assert not flusher.is_due(time.now)
    time.now += 1.1 * patience_s
    assert flusher.is_due(time.now)
