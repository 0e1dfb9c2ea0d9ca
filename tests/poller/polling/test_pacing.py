"""The wait between polls, as a table: the figures are grammY runner's, computed by its own source.ts."""

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
        # 100 updates in 0.5 s are striven for; 16 batches of 1 in 10 s each: far from it
        (1.0, 0.5, [ONE] * BATCHES, 0.5),
        # 100 / 0.5 s * 16 * 0.1 s / (16 * 50 updates) = 0.4
        (1.0, 0.5, [(50, 0.1)] * BATCHES, 0.5 * tanh(0.4)),
        (0.5, 0.5, [(50, 0.1)] * BATCHES, 0.5 * tanh(0.2)),
        # The same twice as fast, with twice the time allowed: half the delay wanted, of twice the limit
        (1.0, 1.0, [(50, 0.1)] * BATCHES, 1.0 * tanh(0.2)),
        # One batch so far; the others count as full ones in a millisecond: 200 * 0.115 s / 1,550 updates
        (1.0, 0.5, [(50, 0.1)], 0.5 * tanh(200 * 0.115 / 1550)),
        # Only the last 16 count
        (1.0, 0.5, [ONE] * 99 + [(50, 0.1)] * BATCHES, 0.5 * tanh(0.4)),
        # Nothing came, for long: as much as may be
        (1.0, 0.5, [(0, 50.0)] * BATCHES, 0.5),
        # A limit below a millisecond makes it no steeper
        (1.0, 0.0005, [(50, 0.0001)] * BATCHES, 0.0005 * tanh(100 / 0.001 * 0.0001 / 50)),
    ],
)
def test_the_wait_follows_the_last_16_batches(
    balance: float, longest_s: float, batches: list[tuple[int, float]], wait_s: float
) -> None:
    assert after(Pace(balance, longest_s), *batches).wait_s == pytest.approx(wait_s)


def test_after_a_full_batch_the_next_poll_is_immediate() -> None:
    pace = after(Pace(1.0, 0.5), *[ONE] * BATCHES)
    assert after(pace, FULL, full=True).wait_s == 0.0
    assert after(pace, FULL, ONE).wait_s > 0.0


def test_the_first_poll_is_made_at_once() -> None:
    assert Pace(1.0, 0.5).wait_s == 0.0
