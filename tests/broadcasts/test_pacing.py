"""The pace of a broadcast: its rate, its window, and how a 429 slows it."""

from __future__ import annotations

import pytest

from chatlanes.broadcasts.pacing import FeedPace, Flood, RateError, checked_rate, next_feed

NOW_US = 1_000_000_000
CALM = Flood(-2, 0, 0)


@pytest.mark.parametrize("rate", [0.1, 0.7, 3.0, 25.0, 30.0, 999.0])
def test_the_rate_is_kept_over_a_minute(rate: float) -> None:
    pace, fed, now_us = FeedPace(NOW_US), 0, NOW_US
    for _ in range(300):
        now_us += 200_000
        count, pace = next_feed(now_us, pace, rate, 0, CALM)
        fed += count
        assert fed <= rate * (now_us - NOW_US) / 1e6 + 1
    assert fed == pytest.approx(rate * 60, abs=rate * 0.3 + 1)


def test_a_long_pause_is_not_made_up_for() -> None:
    count, _ = next_feed(NOW_US + 3_600_000_000, FeedPace(NOW_US), 25, 0, CALM)
    assert count == 25


def test_no_more_are_pending_than_are_reached_in_a_second() -> None:
    assert next_feed(NOW_US + 1_000_000, FeedPace(NOW_US), 25, 20, CALM)[0] == 5
    assert next_feed(NOW_US + 1_000_000, FeedPace(NOW_US), 25, 30, CALM)[0] == 0


@pytest.mark.parametrize("flood", [Flood(2_000, 0, 0), Flood(-2, 400_000, 0)])
def test_nothing_is_fed_while_the_bot_waits(flood: Flood) -> None:
    count, pace = next_feed(NOW_US + 1_000_000, FeedPace(NOW_US), 25, 0, flood)
    assert (count, pace.fed_us) == (0, NOW_US + 1_000_000)


def test_nothing_waits_for_times_from_before_the_clock_was_set_back() -> None:
    hour_us = 3_600_000_000
    count, pace = next_feed(NOW_US, FeedPace(NOW_US + hour_us, 1, NOW_US + hour_us, 7), 25, 0, Flood(-2, hour_us, 7))
    assert (count, pace) == (0, FeedPace(NOW_US, 0, NOW_US, 7))
    assert next_feed(NOW_US + 1_000_000, pace, 25, 0, Flood(-2, hour_us, 7))[0] == 25


def test_each_429_halves_the_rate_which_recovers_later() -> None:
    # Given refusals one after the other
    pace, now_us = FeedPace(NOW_US), NOW_US
    for refused in range(1, 9):
        now_us += 1_000_000
        count, pace = next_feed(now_us, pace, 32, 0, Flood(-2, 0, refused))
        assert count == max(32 >> refused, 2)
    # When there is none for some time
    recovered = []
    for _ in range(6):
        now_us += 31_000_000
        count, pace = next_feed(now_us, pace, 32, 0, Flood(-2, 0, 8))
        recovered.append(count)
    # Then it is doubled again, step by step
    assert recovered == [4, 8, 16, 32, 32, 32]


def test_a_rate_above_30_must_be_paid() -> None:
    assert checked_rate(30, paid=False) == 30
    assert checked_rate(1000, paid=True) == 1000
    with pytest.raises(RateError, match="a rate of 31 per second must be paid"):
        checked_rate(31, paid=False)
