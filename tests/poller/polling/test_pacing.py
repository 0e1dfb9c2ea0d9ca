"""The wait between polls. The expected values are those of grammY runner, computed by its own source.ts."""

from math import tanh

import pytest

from chatlanes.poller.polling.pacing import BATCHES, Pace

ONE, FULL = (1, 10.0), (100, 0.05)


def after(pace: Pace, *batches: tuple[int, float], full: bool = False) -> Pace:
    for updates, seconds in batches:
        pace = pace.after(updates, seconds, full=full)
    return pace


@pytest.mark.parametrize(
    ("balance", "longest_s", "batches", "wait_s"),
    [
        (0.0, 0.5, [ONE] * BATCHES, 0.0),
        (1.0, 0.0, [ONE] * BATCHES, 0.0),
        # The goal is 100 updates in 0.5 s; 16 batches of 1 in 10 s each are far from it
        (1.0, 0.5, [ONE] * BATCHES, 0.5),
        # 100 / 0.5 s * 16 * 0.1 s / (16 * 50 updates) = 0.4
        (1.0, 0.5, [(50, 0.1)] * BATCHES, 0.5 * tanh(0.4)),
        (0.5, 0.5, [(50, 0.1)] * BATCHES, 0.5 * tanh(0.2)),
        # The same rate with twice the limit: half the wanted delay, of twice the limit
        (1.0, 1.0, [(50, 0.1)] * BATCHES, 1.0 * tanh(0.2)),
        # One batch so far; the missing ones count as full batches in a millisecond: 200 * 0.115 s / 1,550 updates
        (1.0, 0.5, [(50, 0.1)], 0.5 * tanh(200 * 0.115 / 1550)),
        # Only the last 16 count
        (1.0, 0.5, [ONE] * 99 + [(50, 0.1)] * BATCHES, 0.5 * tanh(0.4)),
        # No updates for a long time: the longest wait
        (1.0, 0.5, [(0, 50.0)] * BATCHES, 0.5),
        # A limit below a millisecond does not change the slope
        (1.0, 0.0005, [(50, 0.0001)] * BATCHES, 0.0005 * tanh(100 / 0.001 * 0.0001 / 50)),
    ],
)
def test_wait_follows_the_last_16_batches(
    balance: float, longest_s: float, batches: list[tuple[int, float]], wait_s: float
) -> None:
    assert after(Pace(balance, longest_s), *batches).wait_s == pytest.approx(wait_s)


def test_no_wait_after_a_full_batch() -> None:
    pace = after(Pace(1.0, 0.5), *[ONE] * BATCHES)
    assert after(pace, FULL, full=True).wait_s == 0.0
    assert after(pace, FULL, ONE).wait_s > 0.0


def test_first_poll_is_immediate() -> None:
    assert Pace(1.0, 0.5).wait_s == 0.0
