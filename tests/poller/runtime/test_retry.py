"""Retry: unlimited by default, and one log line for each change."""

import logging
from collections.abc import Callable, Iterator

import pytest

from chatlanes.poller.bot_api import FloodedError
from chatlanes.poller.runtime import GaveUpError, Retry, Stop, Stopping


@pytest.fixture
def retry() -> Retry:
    return Retry(
        "Redis",
        ConnectionError,
        Stop(),
        longest_s=0.001,
    )


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
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


def test_success_is_not_logged(retry: Retry, log: pytest.LogCaptureFixture) -> None:
    assert retry.call(outcomes("done")) == "done"
    assert log.messages == []


def test_failure_change_and_recovery_are_one_line_each(retry: Retry, log: pytest.LogCaptureFixture) -> None:
    refused, reset = ConnectionError("refused"), ConnectionError("reset")
    assert retry.call(outcomes(refused, refused, refused, reset, reset, "done")) == "done"
    begins, changes, ends = log.messages
    assert begins.startswith("Redis: refused; retrying")
    assert changes.startswith("Redis: reset; retrying")
    assert ends.startswith("Redis: works again, after ")
    assert retry.trouble is None


def test_same_error_later_is_logged_again(retry: Retry, log: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        retry.call(outcomes(ConnectionError("refused"), "done"))
    assert len(log.messages) == 4


def test_client_details_of_redis_py_are_ignored(retry: Retry, log: pytest.LogCaptureFixture) -> None:
    of_one, of_another = (ConnectionError(f"No master found for 'm' : <Redis at {n}>") for n in (1, 2))
    retry.call(outcomes(of_one, of_another, "done"))
    assert len(log.messages) == 2
    assert log.messages[0].startswith("Redis: No master found for 'm'; retrying")


def test_other_errors_are_raised(retry: Retry) -> None:
    with pytest.raises(ZeroDivisionError):
        retry.call(lambda: 1 // 0)


def test_requested_stop_ends_the_retries() -> None:
    stop = Stop()
    retry = Retry("Redis", ConnectionError, stop, longest_s=600.0)

    def fail() -> None:
        stop.request()
        raise ConnectionError("refused")

    with pytest.raises(Stopping):
        retry.call(fail)


def test_retry_after_is_obeyed_and_logged(log: pytest.LogCaptureFixture) -> None:
    stop = Stop()
    retry = Retry("Telegram", FloodedError, stop, longest_s=0.001)

    def flooded() -> None:
        stop.request()
        raise FloodedError("429, too many requests", 123.0)

    with pytest.raises(Stopping):
        retry.call(flooded)
    assert log.messages == ["Telegram: 429, too many requests; retrying, next attempt in 123.0 s"]


def test_retry_gives_up_at_its_limit(log: pytest.LogCaptureFixture) -> None:
    # Given a limit of half a second, and a server that asks for ten minutes
    retry = Retry("Telegram", FloodedError, Stop(), longest_s=600.0, give_up_after_s=0.5)
    flooded = [FloodedError("429, too many requests", 600.0) for _ in range(9)]
    # Then it gives up at its own limit
    with pytest.raises(GaveUpError, match=r"Telegram: 429, too many requests; gave up after [0-9.]+ s of failures"):
        retry.call(outcomes(*flooded))
