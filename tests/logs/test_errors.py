"""The text of an error is Python's own for the usual ones, and bounded and without secrets for all."""

from __future__ import annotations

import pickle
import traceback

import pytest

from chatlanes.logs import Secrets
from chatlanes.logs.errors import LEFT_OUT, LONGEST_TRACEBACK, traceback_of
from chatlanes.tasks.outcome import HandlerError, fit_for_celery

TOKEN = "123456:SECRET-part_of-the_TOKEN"


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def in_a_context() -> BaseException:
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second")  # noqa: B904 - a context, and no cause
    except ValueError as caught:
        return caught


def noted() -> BaseException:
    error = ValueError("text")
    error.add_note("a note\nof two lines")
    return raised(error)


@pytest.mark.parametrize(
    "error",
    [
        raised(ValueError("text")),
        raised(ValueError()),
        raised(ValueError("a"), raised(KeyError("b"))),
        in_a_context(),
        noted(),
    ],
    ids=["text", "no text", "cause", "context", "note"],
)
def test_a_usual_error_looks_as_in_python(error: BaseException) -> None:
    assert traceback_of(error, Secrets()) == "".join(traceback.format_exception(error))


def test_a_circle_of_causes_ends() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert traceback_of(first, Secrets()).count("first") == 1


def test_an_error_that_cannot_be_shown_is_named() -> None:
    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise LookupError

    assert "UnprintableError: (no message: its __str__ raised LookupError)" in traceback_of(
        UnprintableError(), Secrets()
    )


@pytest.mark.parametrize("before", range(1_960, 2_010))
def test_no_part_of_a_secret_is_left_where_a_text_is_cut(before: int) -> None:
    secrets = Secrets([TOKEN])
    text = traceback_of(ValueError("x" * before + TOKEN + "x" * 5_000), secrets)
    assert "123456:S" not in text
    assert not text.partition(" [left")[0].endswith("1234")
    end = secrets.tail("x" * 500 + TOKEN + "x" * before, before + 12)
    assert "_TOKEN" not in end


def test_an_error_that_is_fit_goes_as_it_is() -> None:
    error = ValueError("text")
    assert fit_for_celery(error, Secrets([TOKEN])) is error


@pytest.mark.parametrize("error", [ValueError(TOKEN), ValueError("x" * 1_000_000), OSError(1, "x" * 1_000_000)])
def test_an_error_that_is_not_fit_is_stood_for(error: Exception) -> None:
    told = fit_for_celery(error, Secrets([TOKEN]))
    assert isinstance(told, HandlerError)
    assert repr(told).startswith(type(error).__name__)
    again = pickle.loads(pickle.dumps(told))  # noqa: S301 - our own
    assert (repr(again), str(again), again.__notes__) == (repr(told), str(told), told.__notes__)
    assert len(pickle.dumps(told)) < 2 * LONGEST_TRACEBACK
    assert TOKEN not in repr(told) + str(told) + "".join(told.__notes__)


def test_the_last_frames_of_a_deep_recursion_are_shown() -> None:
    def deeper(depth: int) -> None:
        if depth == 0:
            raise ValueError("bottom")
        deepest(depth - 1)

    def deepest(depth: int) -> None:
        deeper(depth)

    with pytest.raises(ValueError, match="bottom") as caught:
        deeper(400)
    text = traceback_of(caught.value, Secrets())
    assert LEFT_OUT in text
    assert len(text) < LONGEST_TRACEBACK + 100
    assert text.endswith("ValueError: bottom\n")
