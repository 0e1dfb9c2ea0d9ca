"""The prefetch: the number of messages that a worker holds beyond its free slots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_lanes.leases.prefetch import BACKLOG_WAIT_S, EXPECTED_WAIT_S, MAX_WAIT_FACTOR, PrefetchEstimator


def learned(*runs_s: float) -> PrefetchEstimator:
    estimator = PrefetchEstimator()
    for run_s in runs_s:
        estimator.ran(run_s)
    return estimator


def test_without_measured_runs_there_is_no_prefetch() -> None:
    assert PrefetchEstimator().size(slots=2, most=30) == 0


def test_short_runs_prefetch_up_to_the_expected_wait() -> None:
    assert learned(*[0.001] * 200).size(slots=2, most=1000) == pytest.approx(2 * 20, abs=1)
    assert learned(*[0.001] * 200).size(slots=2, most=30) == 30


def test_slow_runs_stop_the_prefetch() -> None:
    assert learned(*[0.001] * 200, *[1.0] * 3).size(slots=8, most=120) == 0


@pytest.mark.parametrize("slots", [1, 2, 8, 100])
def test_after_a_release_prefetch_stays_zero_until_runs_are_short(slots: int) -> None:
    estimator = learned(*[0.001] * 200)
    estimator.waited_too_long(slots)
    assert estimator.size(slots, most=3000) == 0
    for _ in range(200):
        estimator.ran(0.001)
    assert estimator.size(slots, most=3000) > 0


def test_in_a_backlog_the_local_wait_grows_with_the_wait_in_redis() -> None:
    estimator = learned(*[0.005] * 300)
    # Given fetches that leave messages ready, and return messages that have waited for 7 s, 40 ms and 1 ms
    for waited_s, wait_s in ((7.0, BACKLOG_WAIT_S), (0.04, 0.04), (0.001, EXPECTED_WAIT_S)):
        estimator.fetched([9.0, waited_s, 8.0], more=True)
        assert estimator.size(slots=2, most=1000) == pytest.approx(2 * wait_s / 0.005, abs=1)
        assert estimator.max_wait_s == pytest.approx(wait_s * MAX_WAIT_FACTOR)
    # When a fetch leaves none ready, another worker may be idle
    estimator.fetched([7.0], more=False)
    assert estimator.size(slots=2, most=1000) == pytest.approx(2 * EXPECTED_WAIT_S / 0.005, abs=1)


def test_only_in_a_backlog_a_fetch_waits_until_little_is_left() -> None:
    estimator = learned(*[0.005] * 300)
    assert not estimator.suffices(slots=2, size=40, waiting=39)
    estimator.fetched([7.0], more=True)
    # The next fetch is due when the rest starts within 20 ms: 8 of these messages
    assert estimator.suffices(slots=2, size=40, waiting=9)
    assert not estimator.suffices(slots=2, size=40, waiting=7)
    # Or when half of the prefetch is left, which is less for slow messages
    assert estimator.suffices(slots=2, size=10, waiting=6)
    assert not estimator.suffices(slots=2, size=10, waiting=5)
    # And without a prefetch, a fetch never waits
    assert not estimator.suffices(slots=2, size=0, waiting=0)


@given(st.lists(st.floats(0, 1000)), st.integers(1, 100), st.integers(0, 1000))
def test_the_prefetch_is_between_zero_and_the_maximum(runs_s: list[float], slots: int, most: int) -> None:
    assert 0 <= learned(*runs_s).size(slots, most) <= most


@given(st.floats(1e-4, 10), st.integers(1, 100))
def test_the_whole_prefetch_is_expected_to_start_soon(run_s: float, slots: int) -> None:
    size = learned(*[run_s] * 300).size(slots, 10**9)
    assert size * run_s / slots <= EXPECTED_WAIT_S * 1.01
