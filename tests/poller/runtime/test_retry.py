"""Retry: unlimited by default, and one log line for each change."""

import logging
from collections.abc import Callable, Iterator

import pytest

from chatlanes.poller.responses import FloodedError
from chatlanes.poller.runtime.retry import GaveUpError, Retry
from chatlanes.poller.runtime.stop import Stop, Stopping


@pytest.fixture
def patience() -> Retry:
    return Retry(
        "Redis",
        ConnectionError,
        Stop(),
        longest_s=0.001,
    )


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def outcomes(*of: Exception | str) -> Callable[[], str]:
    """A call that ends in each of these ways in turn."""
    rest: Iterator[Exception | str] = iter(of)

    def call() -> str:
        outcome = next(rest)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return call


def test_success_is_not_logged(patience: Retry, told: pytest.LogCaptureFixture) -> None:
    assert patience.call(outcomes("done")) == "done"
    assert told.messages == []


def test_one_line_for_trouble_one_for_another_one_for_the_end(patience: Retry, told: pytest.LogCaptureFixture) -> None:
    refused, reset = ConnectionError("refused"), ConnectionError("reset")
    assert patience.call(outcomes(refused, refused, refused, reset, reset, "done")) == "done"
    begins, changes, ends = told.messages
    assert begins.startswith("Redis: refused; retrying")
    assert changes.startswith("Redis: reset; retrying")
    assert ends.startswith("Redis: works again, after ")
    assert patience.trouble is None


def test_the_same_error_later_is_logged_again(patience: Retry, told: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        patience.call(outcomes(ConnectionError("refused"), "done"))
    assert len(told.messages) == 4


def test_the_clients_that_redis_py_lists_make_no_difference(patience: Retry, told: pytest.LogCaptureFixture) -> None:
    of_one, of_another = (ConnectionError(f"No master found for 'm' : <Redis at {n}>") for n in (1, 2))
    patience.call(outcomes(of_one, of_another, "done"))
    assert len(told.messages) == 2
    assert told.messages[0].startswith("Redis: No master found for 'm'; trying")


def test_other_errors_go_up(patience: Retry) -> None:
    with pytest.raises(ZeroDivisionError):
        patience.call(lambda: 1 // 0)


def test_asked_to_stop_it_does_not_try_again() -> None:
    stop = Stop()
    patience = Retry("Redis", ConnectionError, stop, longest_s=600.0)

    def fail() -> None:
        stop.request()
        raise ConnectionError("refused")

    with pytest.raises(Stopping):
        patience.call(fail)


def test_the_wish_to_wait_is_obeyed_and_told(told: pytest.LogCaptureFixture) -> None:
    stop = Stop()
    patience = Retry("Telegram", FloodedError, stop, longest_s=0.001)

    def flooded() -> None:
        stop.request()
        raise FloodedError("429, too many requests", 123.0)

    with pytest.raises(Stopping):
        patience.call(flooded)
    assert told.messages == ["Telegram: 429, too many requests; retrying, next attempt in 123.0 s"]


def test_it_gives_up_after_its_limit(told: pytest.LogCaptureFixture) -> None:
    # Given somebody who waits half a second at most, and another side that wishes for ten minutes
    patience = Retry("Telegram", FloodedError, Stop(), longest_s=600.0, give_up_after_s=0.5)
    flooded = [FloodedError("429, too many requests", 600.0) for _ in range(9)]
    # Then it is given up all the same
    with pytest.raises(GaveUpError, match=r"Telegram: 429, too many requests; gave up after [0-9.]+ s of failures"):
        patience.call(outcomes(*flooded))
