"""The in-flight table: leased messages, pending acks and capacity."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from redis import Redis
from redis.exceptions import RedisError

from celery_lanes.leases import reports as reports_module
from celery_lanes.leases.background import AckFlusher
from celery_lanes.leases.in_flight import InFlight, Terminating
from celery_lanes.leases.prefetch import Pool
from celery_lanes.leases.reports import DONE, GONE, REFUSED, RELEASED, STARTED
from celery_lanes.protocol import Leased, Store
from celery_lanes.runtime import clock


class Clock:
    """A clock that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(clock, "now_s", lambda: self.now)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def in_flight(time: Clock) -> Iterator[InFlight]:
    made = InFlight(lease_s=15)
    made.capacity.use_pool(Pool(slots=lambda: 4, forks=True, spare=0))
    yield made
    made.channel.close()


def take(in_flight: InFlight, *ids: str, died: int = 0, suspects_wait: bool = False) -> list[str]:
    """Receive these messages by a fetch; returns their tags."""
    leased = [Leased(each, "1", "q", died, 0, False, 0.0, None, None, b"") for each in ids]
    return [held.tag for held in in_flight.finish_fetch(leased, clock.now_s(), suspects_wait=suspects_wait)]


def run(in_flight: InFlight, time: Clock, count: int, each_s: float) -> None:
    """Run `count` messages, one after the other."""
    for number in range(count):
        [tag] = take(in_flight, f"m{number}")
        in_flight.claim(tag, starts=True)
        time.now += each_s
        in_flight.done(tag)


# -- capacity


def test_prefetch_grows_with_the_backlog(in_flight: InFlight, time: Clock) -> None:
    in_flight.capacity.use_pool(Pool(slots=lambda: 4, forks=True, spare=15))
    # Given runs of 5 ms
    run(in_flight, time, 100, each_s=0.005)
    usual = in_flight.capacity.size()
    assert usual == pytest.approx(4 + 16, abs=1)
    assert not in_flight.capacity.can_wait()
    # When a fetch returns messages that have waited for a second, and more are ready
    leased = [Leased(f"w{n}", "1", "q", 0, 0, False, 1.0, None, None, b"") for n in range(usual)]
    taken = in_flight.finish_fetch(leased, time.now, suspects_wait=False, more=True)
    # Then the capacity is the maximum, and while much of it is free, the next fetch is sent at once
    assert in_flight.capacity.size() == 4 + 60 - usual
    assert not in_flight.capacity.can_wait()
    more = in_flight.finish_fetch(
        [leased[0]._replace(id=f"v{n}") for n in range(in_flight.capacity.size())],
        time.now,
        suspects_wait=False,
        more=True,
    )
    assert in_flight.capacity.can_wait()
    # And with little left that starts within 20 ms, it is sent at once again
    for held in (taken + more)[:45]:
        assert in_flight.capacity.can_wait()
        in_flight.claim(held.tag, starts=True)
        time.now += 0.005
        in_flight.done(held.tag)
    assert not in_flight.capacity.can_wait()


def test_a_fetch_does_not_wait_for_ordinary_tasks(in_flight: InFlight, time: Clock) -> None:
    # Given a worker in a backlog whose slots run ordinary tasks, with more of them waiting
    in_flight.capacity.use_pool(Pool(slots=lambda: 4, forks=False, spare=15))
    run(in_flight, time, 100, each_s=0.005)
    leased = [Leased("a", "1", "q", 0, 0, False, 1.0, None, None, b"")]
    [held] = in_flight.finish_fetch(leased, time.now, suspects_wait=False, more=True)
    assert in_flight.capacity.size(occupied=64) == 0
    # When its only message has ended, then the next fetch is sent at once, and again as soon as there is capacity
    in_flight.done(held.tag)
    assert not in_flight.capacity.can_wait()
    assert in_flight.capacity.size(occupied=0) > 0
    assert not in_flight.capacity.can_wait()


def test_without_a_pool_no_fetch_waits(in_flight: InFlight) -> None:
    """A kombu consumer without a worker, which has a prefetch count."""
    in_flight.capacity.use_pool(None)
    leased = [Leased("a", "1", "q", 0, 0, False, 1.0, None, None, b"")]
    in_flight.finish_fetch(leased, clock.now_s(), suspects_wait=False, more=True)
    assert not in_flight.capacity.can_wait()


def test_a_suspect_in_a_backlog_waits_for_an_empty_worker(in_flight: InFlight, time: Clock) -> None:
    # Given a worker with many messages in flight, and a suspect in the backlog that waits for an empty worker
    in_flight.capacity.use_pool(Pool(slots=lambda: 2, forks=True, spare=15))
    run(in_flight, time, 200, each_s=0.005)
    leased = [Leased(f"w{n}", "1", "q", 0, 0, False, 1.0, None, None, b"") for n in range(20)]
    taken = in_flight.finish_fetch(leased, time.now, suspects_wait=True, more=True)
    # Then it fetches no messages, but settles; these fetches do not report whether suspects wait
    assert in_flight.capacity.size() == 0
    for held in taken:
        assert not in_flight.capacity.can_wait()
        in_flight.done(held.tag)
        in_flight.finish_fetch([], time.now, suspects_wait=None, more=True)
        assert in_flight.capacity.size() == (held is taken[-1])
    # And when it holds nothing, it fetches the suspect
    assert in_flight.capacity.size() == 1
    assert not in_flight.capacity.can_wait()


def test_capacity_is_the_number_of_free_slots(in_flight: InFlight) -> None:
    assert in_flight.capacity.size() == 4
    take(in_flight, "a", "b")
    assert in_flight.capacity.size() == 2
    assert in_flight.capacity.size(occupied=1) == 1
    take(in_flight, "c", "d", "e")
    assert in_flight.capacity.size() == 0


def test_a_finished_message_frees_capacity(in_flight: InFlight) -> None:
    done, gone, back, buried = take(in_flight, "a", "b", "c", "d")
    in_flight.done(done)
    in_flight.reports.send(GONE, gone)
    in_flight.release(back)
    in_flight.bury(buried, {})
    assert in_flight.capacity.size() == 4
    assert in_flight.holding() == 0


def test_without_a_pool_the_capacity_is_zero(in_flight: InFlight) -> None:
    in_flight.capacity.use_pool(None)
    assert in_flight.capacity.size() == 0


def test_a_suspect_is_held_alone(in_flight: InFlight) -> None:
    [tag] = take(in_flight, "suspect", died=2)
    assert in_flight.capacity.size() == 0
    in_flight.done(tag)
    assert in_flight.capacity.size() == 4


def test_a_waiting_suspect_gets_a_capacity_of_one_in_an_empty_worker(in_flight: InFlight) -> None:
    [tag] = take(in_flight, "a", suspects_wait=True)
    assert in_flight.capacity.size() == 0
    in_flight.done(tag)
    assert in_flight.capacity.size() == 1


def test_quick_runs_increase_the_capacity(in_flight: InFlight, time: Clock) -> None:
    in_flight.capacity.use_pool(Pool(slots=lambda: 4, forks=True, spare=15))
    run(in_flight, time, 200, each_s=0.001)
    assert in_flight.capacity.size() > 4


# -- claims


def test_a_released_message_cannot_be_claimed(in_flight: InFlight) -> None:
    [tag] = take(in_flight, "a")
    assert in_flight.release_unclaimed() == 1
    assert not in_flight.claim(tag, starts=True)
    assert list(in_flight.pending_acks.start_flush().releases) == [("a", "1", False, False)]


def test_a_claimed_message_is_not_released_as_unclaimed(in_flight: InFlight) -> None:
    [tag] = take(in_flight, "a")
    assert in_flight.claim(tag, starts=False)
    assert in_flight.release_unclaimed() == 0
    assert in_flight.holds(tag)


def test_a_message_cannot_be_claimed_after_its_lease(in_flight: InFlight, time: Clock) -> None:
    [tag] = take(in_flight, "a")
    time.now += 15
    assert not in_flight.claim(tag, starts=True)
    assert in_flight.holding() == 0


def test_a_message_that_a_busy_child_did_not_start_is_released(in_flight: InFlight, time: Clock) -> None:
    # Given four messages in the pipes of busy children, which start them by 1000.05 or not at all
    early, late, returned, _ = tags = take(in_flight, "early", "late", "returned", "silent")
    for tag in tags:
        assert in_flight.claim(tag, starts=False, start_by_s=1000.05)
    # When one starts in time, another one slightly too late, and a third is released by its child
    time.now = 1000.04
    in_flight.channel.report(STARTED, early)
    time.now = 1000.051
    assert in_flight.release_unclaimed() == in_flight.release_waiting(longer_than_s=0) == 0
    in_flight.channel.report(STARTED, late)
    in_flight.channel.report(STARTED, returned)
    in_flight.channel.report(RELEASED, returned)
    in_flight.reports.read()
    assert list(in_flight.pending_acks.start_flush().releases) == [("returned", "1", False, True)]
    # Then the two that have not started are released, uncounted, as soon as no child can start them
    assert in_flight.release_waiting(longer_than_s=0) == 0
    time.now = 1000.06
    assert in_flight.release_waiting(longer_than_s=0) == 2
    released = list(in_flight.pending_acks.start_flush().releases)
    assert released == [("late", "1", False, False), ("silent", "1", False, False)]
    assert not in_flight.claim(late, starts=False)
    # And the running one stays
    assert in_flight.holds(early)
    in_flight.release(early, died=True)
    assert list(in_flight.pending_acks.start_flush().releases) == [("early", "1", True, True)]


def test_the_loss_of_a_lease_is_logged_once(in_flight: InFlight, caplog: pytest.LogCaptureFixture) -> None:
    # Given a run whose loss a renewal has found, one that nobody knows to be lost, and one that has committed
    known, new, ended = take(in_flight, "known", "new", "ended")
    for tag in (known, new, ended):
        in_flight.claim(tag, starts=True)
    assert in_flight.renewed([("known", "1")], ["known"], 1000.0) == ["known"]  # its caller logs it
    in_flight.reports.send(GONE, ended)
    # When Redis refuses a command of each of them
    for tag in (known, new, ended):
        in_flight.reports.send(REFUSED, tag)
    # Then only the second one is logged and released, and none keeps a slot
    assert [record.getMessage() for record in caplog.records] == [
        "lanes: the lease of new is over; another worker may run it"
    ]
    assert list(in_flight.pending_acks.start_flush().releases) == [("new", "1", False, True)]
    assert in_flight.counts() == (0, 0, 0)


def test_a_renewed_lease_can_be_claimed_later(in_flight: InFlight, time: Clock) -> None:
    [tag] = take(in_flight, "a")
    time.now += 10
    in_flight.renewed([("a", "1")], [], clock.now_s())
    time.now += 10
    assert in_flight.claim(tag, starts=True)


def test_a_renewed_lease_lasts_for_one_lease(in_flight: InFlight, time: Clock) -> None:
    [tag] = take(in_flight, "a")
    time.now += 10
    in_flight.renewed([("a", "1")], [], clock.now_s())
    time.now += 15
    assert not in_flight.claim(tag, starts=True)


def test_prefetched_messages_behind_a_slow_one_are_released(in_flight: InFlight, time: Clock) -> None:
    in_flight.capacity.use_pool(Pool(slots=lambda: 1, forks=False, spare=15))
    [slow, *_] = take(in_flight, "slow", "old")
    in_flight.claim(slow, starts=True)
    time.now += 0.06
    take(in_flight, "new")
    assert in_flight.release_waiting(longer_than_s=0.05) == 1
    assert [each[0] for each in in_flight.pending_acks.start_flush().releases] == ["old"]


def test_a_message_with_a_slot_stays_until_it_starts(in_flight: InFlight, time: Clock) -> None:
    # On a busy machine, a released message would be handed out and be late again.
    in_flight.capacity.use_pool(Pool(slots=lambda: 2, forks=False, spare=0))
    take(in_flight, "a", "b")
    time.now += 5
    assert in_flight.release_waiting(longer_than_s=0.05) == 0


def test_a_slot_with_an_ordinary_task_is_not_free(in_flight: InFlight, time: Clock) -> None:
    in_flight.capacity.use_pool(Pool(slots=lambda: 2, forks=False, spare=0))
    take(in_flight, "a", "b")
    in_flight.capacity.size(occupied=1)
    time.now += 0.06
    assert in_flight.release_waiting(longer_than_s=0.05) == 1
    assert [each[0] for each in in_flight.pending_acks.start_flush().releases] == ["b"]


def test_messages_of_one_queue_can_be_released(in_flight: InFlight) -> None:
    take(in_flight, "a")
    assert in_flight.release_unclaimed(queue="another") == 0
    assert in_flight.release_unclaimed(queue="q") == 1


# -- deaths


def test_an_unread_start_report_counts(in_flight: InFlight) -> None:
    # The child reported its start, and died: both may arrive together.
    [tag] = take(in_flight, "a")
    in_flight.claim(tag, starts=False)
    in_flight.channel.report(STARTED, tag)
    in_flight.release(tag, died=True)
    assert list(in_flight.pending_acks.start_flush().releases) == [("a", "1", True, True)]


@pytest.mark.parametrize("began", [True, False])
def test_a_death_counts_only_after_the_start(in_flight: InFlight, began: bool) -> None:
    [tag] = take(in_flight, "a")
    in_flight.claim(tag, starts=False)
    if began:
        in_flight.channel.report(STARTED, tag)
        in_flight.reports.read()
    in_flight.release(tag, died=True)
    assert list(in_flight.pending_acks.start_flush().releases) == [("a", "1", began, True)]


# -- times


def times_without_sums(in_flight: InFlight) -> dict[str, int]:
    """The timings that the next fetch sends, without the sums."""
    return {field: n for field, n in in_flight.pending_acks.times_to_fetch().items() if " sum " not in field}


@pytest.mark.parametrize("is_reported", [True, False], ids=["a child", "a thread"])
def test_wait_and_run_are_timed_separately(in_flight: InFlight, time: Clock, is_reported: bool) -> None:
    # Given a message that waited 4 s for its hand-out, and 3 s more until its handler started
    leased = Leased("a", "1", "shop.0", 0, 0, False, 4.0, None, None, b"")
    [held] = in_flight.finish_fetch([leased], time.now - 0.5, suspects_wait=False)
    time.now += 2.5
    in_flight.claim(held.tag, starts=not is_reported)
    if is_reported:
        in_flight.channel.report(STARTED, held.tag)
    # When it ends after 12 s, and its report is read a minute later
    time.now += 12
    in_flight.channel.report(DONE, held.tag)
    time.now += 60
    in_flight.reports.read()
    # Then wait and run have their own times, and are sent once
    assert in_flight.pending_acks.times_to_fetch() == {
        "wait 10 shop": 1,
        "wait sum shop": 7_000_000,
        "run 15 shop": 1,
        "run sum shop": 12_000_000,
    }
    in_flight.finish_fetch([], 0, suspects_wait=False)
    time.now += 1
    assert times_without_sums(in_flight) == {}


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
def test_only_a_first_run_records_its_wait(
    in_flight: InFlight, failed: int, died: int, is_parked: bool, alive_s: float | None, times: dict[str, int]
) -> None:
    leased = Leased("a", "1", "q", died, failed, is_parked, 4.0, None, alive_s, b"")
    [held] = in_flight.finish_fetch([leased], clock.now_s(), suspects_wait=False)
    for _ in range(2):
        in_flight.claim(held.tag, starts=True)
    assert times_without_sums(in_flight) == times


def test_an_evicted_run_is_timed_and_a_lost_one_is_not(in_flight: InFlight, time: Clock) -> None:
    evicted, lost = take(in_flight, "a", "b", died=1)
    for tag in (evicted, lost):
        in_flight.claim(tag, starts=True)
    time.now += 2
    in_flight.evict(evicted, None, {})
    in_flight.renewed([("b", "1")], ["b"], time.now)
    time.now += 60
    in_flight.done(evicted)
    in_flight.done(lost)
    assert times_without_sums(in_flight) == {"run 2.5 q": 1, "lost runs q": 1}


def test_timings_of_a_failed_fetch_are_sent_with_a_later_one(in_flight: InFlight, time: Clock) -> None:
    one, other = take(in_flight, "a", "b")
    in_flight.claim(one, starts=True)
    assert times_without_sums(in_flight) == {"wait 0.001 q": 1}
    in_flight.claim(other, starts=True)
    in_flight.fail_fetch()
    assert times_without_sums(in_flight) == {}
    time.now += 0.2
    assert times_without_sums(in_flight) == {"wait 0.001 q": 2}
    in_flight.finish_fetch([], 0, suspects_wait=False)
    # Without fetches the background thread sends them, and keeps them if that fails
    in_flight.done(one)
    assert in_flight.pending_acks.start_flush().times["run 0.25 q"] == 1
    in_flight.pending_acks.flush_failed()
    assert in_flight.pending_acks.has_times()


# -- acks


def test_a_settle_is_kept_until_its_fetch_has_ended(in_flight: InFlight) -> None:
    [tag] = take(in_flight, "a")
    in_flight.done(tag)
    assert in_flight.start_fetch() == [("a", "1")]
    assert not in_flight.pending_acks.has_settles()
    assert in_flight.leases() == [("a", "1")]
    in_flight.fail_fetch()
    assert in_flight.must_reconcile
    assert in_flight.start_fetch() == [("a", "1")]
    in_flight.finish_fetch([], 0, suspects_wait=False)
    assert in_flight.leases() == []
    assert in_flight.start_fetch() == []


def test_a_fetch_that_cannot_have_run_needs_no_reconcile(in_flight: InFlight) -> None:
    in_flight.fail_fetch(may_have_run=False)
    assert not in_flight.must_reconcile


def test_a_message_reported_twice_is_settled_once(in_flight: InFlight) -> None:
    [tag] = take(in_flight, "a")
    in_flight.channel.report(DONE, tag)
    in_flight.reports.read()
    in_flight.done(tag)
    assert in_flight.start_fetch() == [("a", "1")]


def test_a_retried_message_is_not_settled(in_flight: InFlight) -> None:
    [tag] = take(in_flight, "a")
    in_flight.channel.report(GONE, tag)
    in_flight.reports.read()
    in_flight.done(tag)
    assert in_flight.start_fetch() == []


def test_unsent_acks_are_sent_first_in_the_next_flush(in_flight: InFlight) -> None:
    first, second, third, fourth, fifth, sixth = take(in_flight, *"abcdef")
    in_flight.done(first)
    in_flight.release(second)
    in_flight.bury(third, {})
    in_flight.pending_acks.start_flush()
    in_flight.done(fourth)
    in_flight.release(fifth)
    in_flight.bury(sixth, {})
    in_flight.pending_acks.flush_failed()
    again = in_flight.pending_acks.start_flush()
    assert [each[0] for each in again.settles] == ["a", "d"]
    assert [each[0] for each in again.releases] == ["b", "e"]
    assert [each[0] for each in again.burials] == ["c", "f"]
    assert not in_flight.pending_acks.has_any()


def test_a_started_message_is_terminated_by_its_process(in_flight: InFlight) -> None:
    started, waiting = take(in_flight, "a", "b")
    in_flight.claim(started, starts=True)
    assert in_flight.terminate(started, {"type": "Terminated"}) is Terminating.RUNS
    assert in_flight.terminate(waiting, {"type": "Terminated"}) is not Terminating.RUNS
    assert [message_id for message_id, *_ in in_flight.pending_acks.queued.burials] == ["b"]


def test_releases_and_burials_are_sent_at_once(in_flight: InFlight) -> None:
    done, back, buried = take(in_flight, "a", "b", "c")
    in_flight.done(done)
    assert in_flight.pending_acks.has_any()
    assert not in_flight.pending_acks.has_urgent()
    in_flight.release(back)
    assert in_flight.pending_acks.has_urgent()
    in_flight.pending_acks.start_flush()
    in_flight.bury(buried, {})
    assert in_flight.pending_acks.has_urgent()


# -- leases


def test_a_lost_lease_keeps_its_slot_and_is_not_settled(in_flight: InFlight) -> None:
    [tag] = take(in_flight, "a")
    in_flight.claim(tag, starts=True)
    assert in_flight.renewed([("a", "1")], ["a"], clock.now_s()) == ["a"]
    assert not in_flight.holds(tag)
    assert in_flight.leases() == []
    assert in_flight.capacity.size() == 3
    in_flight.done(tag)
    assert in_flight.capacity.size() == 4
    assert not in_flight.pending_acks.has_any()


def test_a_lease_lost_before_its_start_is_removed(in_flight: InFlight) -> None:
    [tag] = take(in_flight, "a")
    assert in_flight.renewed([("a", "1")], ["a"], clock.now_s()) == []
    assert not in_flight.claim(tag, starts=True)
    assert in_flight.capacity.size() == 4


def test_an_unstarted_message_is_released_after_a_lease(in_flight: InFlight, time: Clock) -> None:
    dropped, running, reported, _ = take(in_flight, "dropped", "running", "reported", "not sent to the pool")
    in_flight.claim(dropped, starts=False)
    in_flight.claim(running, starts=True)
    in_flight.claim(reported, starts=False)
    in_flight.channel.report(STARTED, reported)  # the report is not read yet
    time.now += 15
    assert in_flight.release_overdue() == 0
    time.now += 1
    assert in_flight.release_overdue() == 2
    assert in_flight.leases() == [("running", "1"), ("reported", "1")]
    assert [(each[0], each[2]) for each in in_flight.pending_acks.start_flush().releases] == [
        ("dropped", False),
        ("not sent to the pool", False),
    ]
    assert not in_flight.claim(dropped, starts=True)


def test_a_message_is_held_until_its_ack_is_sent(in_flight: InFlight) -> None:
    # A reconcile meanwhile would release the messages, and the acks would be too late.
    done, back, buried, evicted, _ = take(in_flight, "done", "back", "buried", "evicted", "held")
    in_flight.done(done)
    in_flight.release(back)
    in_flight.bury(buried, {})
    in_flight.evict(evicted, 0, {})
    everything = {"done", "back", "buried", "evicted", "held"}
    assert set(in_flight.leased_ids()) == everything
    in_flight.pending_acks.start_flush()
    assert set(in_flight.leased_ids()) == everything
    in_flight.pending_acks.flush_answered()
    assert in_flight.leased_ids() == ["held"]


def test_an_ack_with_an_old_fence_is_ignored(in_flight: InFlight) -> None:
    take(in_flight, "a")
    in_flight.done("a#0")
    in_flight.release("a#0")
    assert in_flight.holds("a#1")
    assert not in_flight.pending_acks.has_any()


def test_a_settle_wakes_the_loop_or_the_background_thread(in_flight: InFlight) -> None:
    tags = take(in_flight, "a", "b")
    in_flight.done(tags[0])
    assert in_flight.wakeups.background.wait(0), "without a consumer, the background thread settles"
    in_flight.wakeups.add_consumer()
    in_flight.done(tags[1])
    assert not in_flight.wakeups.background.wait(0)
    assert os.read(in_flight.channel.reader, 10) == b"\n"


# -- evictions


def test_an_evicted_message_keeps_its_slot_until_it_ends(in_flight: InFlight) -> None:
    tag, other = take(in_flight, "a", "b")
    in_flight.claim(tag, starts=True)
    assert in_flight.evict(tag, 500, {"type": "late"})
    assert (in_flight.holds(tag), in_flight.leases(), in_flight.capacity.size()) == (False, [("b", "1")], 2)
    assert in_flight.pending_acks.has_urgent()
    # The later end of its handler is not sent to Redis
    in_flight.done(tag)
    assert in_flight.capacity.size() == 3
    flush = in_flight.pending_acks.start_flush()
    assert list(flush.retries) == [("a", "1", 500, {"type": "late"})]
    assert [*flush.settles, *flush.burials, *flush.releases] == []
    assert in_flight.holds(other)


def test_an_eviction_without_a_delay_buries(in_flight: InFlight) -> None:
    [tag] = take(in_flight, "a")
    assert in_flight.evict(tag, None, {"type": "late"})
    assert list(in_flight.pending_acks.start_flush().burials) == [("a", "1", {"type": "late"})]


def test_a_message_that_is_not_held_cannot_be_evicted(in_flight: InFlight) -> None:
    done, lost = take(in_flight, "a", "b")
    for tag in (done, lost):
        in_flight.claim(tag, starts=True)
    in_flight.done(done)
    in_flight.renewed([("b", "1")], ["b"], clock.now_s())
    for tag in (done, lost, "unknown#1"):
        assert not in_flight.evict(tag, 0, {})
    assert not in_flight.pending_acks.has_urgent()


def test_unsent_evictions_are_sent_again(in_flight: InFlight) -> None:
    for tag in take(in_flight, "a", "b"):
        in_flight.evict(tag, 0, {})
    in_flight.pending_acks.start_flush()
    in_flight.pending_acks.flush_failed()
    assert [each[0] for each in in_flight.pending_acks.start_flush().retries] == ["a", "b"]


def test_a_suspect_does_not_wait_for_an_evicted_handler(in_flight: InFlight) -> None:
    # Given an evicted handler that may never end, and a suspect that must run alone
    [endless] = take(in_flight, "endless", suspects_wait=True)
    in_flight.claim(endless, starts=True)
    assert (in_flight.capacity.size(), in_flight.leased()) == (0, 1)
    in_flight.evict(endless, 0, {})
    # Then there is capacity for the suspect
    assert (in_flight.capacity.size(), in_flight.leased()) == (1, 0)
    in_flight.capacity.use_pool(Pool(slots=lambda: 1, forks=False, spare=0))
    assert in_flight.capacity.size() == 0


def test_an_evicted_suspect_occupies_only_its_slot(in_flight: InFlight) -> None:
    [suspect] = take(in_flight, "suspect", died=2)
    in_flight.evict(suspect, 0, {})
    assert in_flight.capacity.size() == 3
    in_flight.done(suspect)
    assert in_flight.capacity.size() == 4


def test_a_settle_is_kept_until_its_flush_is_answered(in_flight: InFlight) -> None:
    # A reconcile meanwhile would take it for a message of a lost reply, and release it.
    [tag] = take(in_flight, "a")
    in_flight.done(tag)
    in_flight.pending_acks.start_flush()
    assert in_flight.leases() == [("a", "1")]
    in_flight.pending_acks.flush_answered()
    assert in_flight.leases() == []


def test_the_loop_is_woken_once_per_iteration(in_flight: InFlight, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a loop that has been woken
    in_flight.wakeups.add_consumer()
    *many, during, after = take(in_flight, "a", "b", "c", "d", "e")
    for tag in many:
        in_flight.done(tag)
    read = in_flight.channel.read
    # When one more message is settled while the loop reads the wake-up
    monkeypatch.setattr(in_flight.channel, "read", lambda: in_flight.done(during) or read())
    in_flight.reports.read()
    # Then there was only one wake-up, and the next settle wakes the loop again
    with pytest.raises(BlockingIOError):
        os.read(in_flight.channel.reader, 1)
    in_flight.done(after)
    assert os.read(in_flight.channel.reader, 10) == b"\n"
    assert len(in_flight.start_fetch()) == 5


@pytest.mark.parametrize("ends", ["is answered", "is lost", "takes long"])
def test_a_settle_does_not_wake_a_loop_during_a_fetch(ends: str, in_flight: InFlight, time: Clock) -> None:
    # Given a fetch in flight
    in_flight.wakeups.add_consumer()
    during, after = take(in_flight, "a", "b")
    in_flight.start_fetch()
    # When a message is settled meanwhile
    in_flight.done(during)
    # Then the loop is not woken, because the reply of the fetch wakes it
    with pytest.raises(BlockingIOError):
        os.read(in_flight.channel.reader, 1)
    # When the fetch has ended, or its reply is late
    if ends == "is answered":
        in_flight.finish_fetch([], time.now, suspects_wait=False)
    elif ends == "is lost":
        in_flight.fail_fetch()
    else:
        time.now += reports_module.ANSWERED_WITHIN_S
    in_flight.done(after)
    # Then the next settle wakes the loop
    assert os.read(in_flight.channel.reader, 10) == b"\n"


def test_overdue_acks_are_sent_without_a_fetch(in_flight: InFlight, time: Clock) -> None:
    flusher = AckFlusher(in_flight, Store(Redis()))
    in_flight.wakeups.add_consumer()
    max_wait_s = in_flight.capacity.max_wait_s
    # Given fetches in sequence, with a settle before each of them
    for tag in take(in_flight, "a", "b", "c"):
        in_flight.done(tag)
        assert not flusher.is_due(time.now)
        time.now += 0.6 * max_wait_s
        assert not flusher.is_due(time.now)
        assert in_flight.start_fetch()
        in_flight.finish_fetch([], time.now, suspects_wait=False)
    # When the loop is blocked, then the background thread sends the settle
    in_flight.done(*take(in_flight, "d"))
    assert not flusher.is_due(time.now)
    time.now += 1.1 * max_wait_s
    assert flusher.is_due(time.now)


@pytest.mark.slow
def test_acks_that_could_not_be_sent_stay_pending(in_flight: InFlight) -> None:
    in_flight.done(*take(in_flight, "a"))
    with pytest.raises(RedisError):
        AckFlusher(in_flight, Store(Redis(port=1))).flush()
    assert in_flight.start_fetch() == [("a", "1")]
