"""Backoff delays, as a table."""

import pytest

from chatlanes.poller.runtime import LEAST_S, delay_s


@pytest.mark.parametrize(
    ("failures", "spread", "expected_s"),
    [
        (1, 0.0, 0.5),
        (1, 1.0, 1.0),
        (2, 0.0, 1.0),
        (2, 1.0, 2.0),
        (5, 1.0, 16.0),
        (6, 0.0, 15.0),
        (6, 1.0, 30.0),
        (7, 1.0, 30.0),
        (100_000, 0.5, 22.5),
    ],
)
def test_delay_doubles_to_a_limit_with_jitter(failures: int, spread: float, expected_s: float) -> None:
    assert delay_s(failures, longest_s=30.0, spread=spread) == expected_s


@pytest.mark.parametrize(
    ("retry_after_s", "expected_s"),
    [(0.0, LEAST_S), (-3.0, LEAST_S), (7.0, 7.0), (3600.0, 3600.0), (1e300, 3600.0), (10**400, 3600.0)],
)
def test_retry_after_is_used_with_a_minimum(retry_after_s: float, expected_s: float) -> None:
    assert delay_s(9, longest_s=30.0, spread=0.5, retry_after_s=retry_after_s) == expected_s
