"""The text of an error: Python's own for ordinary errors, bounded and without secrets for all."""

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
def test_ordinary_error_looks_as_in_python(error: BaseException) -> None:
    assert traceback_of(error, Secrets()) == "".join(traceback.format_exception(error))


def test_circular_causes_are_shown_once() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert traceback_of(first, Secrets()).count("first") == 1


def test_error_without_a_text_is_named() -> None:
    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise LookupError

    assert "UnprintableError: (no message: its __str__ raised LookupError)" in traceback_of(
        UnprintableError(), Secrets()
    )


@pytest.mark.parametrize("before", range(1_960, 2_010))
def test_truncated_text_contains_no_part_of_a_secret(before: int) -> None:
    secrets = Secrets([TOKEN])
    text = traceback_of(ValueError("x" * before + TOKEN + "x" * 5_000), secrets)
    assert "123456:S" not in text
    assert not text.partition(" [left")[0].endswith("1234")
    end = secrets.tail("x" * 500 + TOKEN + "x" * before, before + 12)
    assert "_TOKEN" not in end


def test_suitable_error_is_passed_unchanged() -> None:
    error = ValueError("text")
    assert fit_for_celery(error, Secrets([TOKEN])) is error


@pytest.mark.parametrize("error", [ValueError(TOKEN), ValueError("x" * 1_000_000), OSError(1, "x" * 1_000_000)])
def test_unsuitable_error_is_replaced(error: Exception) -> None:
    replaced = fit_for_celery(error, Secrets([TOKEN]))
    assert isinstance(replaced, HandlerError)
    assert repr(replaced).startswith(type(error).__name__)
    again = pickle.loads(pickle.dumps(replaced))  # noqa: S301 - our own
    assert (repr(again), str(again), again.__notes__) == (repr(replaced), str(replaced), replaced.__notes__)
    assert len(pickle.dumps(replaced)) < 2 * LONGEST_TRACEBACK
    assert TOKEN not in repr(replaced) + str(replaced) + "".join(replaced.__notes__)


def test_last_frames_of_a_deep_recursion_are_shown() -> None:
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
