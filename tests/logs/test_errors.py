"""The text of an error is Python's own in usual cases, and always bounded and without secrets."""

from __future__ import annotations

import asyncio
import pickle
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, cast

import pytest

from chatlanes.logs import Secrets
from chatlanes.logs.errors import LEFT_OUT, LONGEST_TRACEBACK, traceback_of
from chatlanes.tasks.settlement import HandlerError, fit_for_celery

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
    error.add_note("a note")
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
def test_cutting_a_text_leaves_no_part_of_a_secret(before: int) -> None:
    secrets = Secrets([TOKEN])
    text = traceback_of(ValueError("x" * before + TOKEN + "x" * 5_000), secrets)
    assert "123456:S" not in text
    assert not text.partition(" [left")[0].endswith("1234")
    end = secrets.tail("x" * 500 + TOKEN + "x" * before, before + 12)
    assert "_TOKEN" not in end


def test_a_small_error_is_passed_unchanged() -> None:
    error = ValueError("text")
    assert fit_for_celery(error, Secrets([TOKEN])) is error


@pytest.mark.parametrize("error", [ValueError(TOKEN), ValueError("x" * 1_000_000), OSError(1, "x" * 1_000_000)])
def test_an_error_that_is_too_large_is_replaced(error: Exception) -> None:
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


def library_call(module: str, file: str, function: Callable[[], None]) -> Callable[[], None]:
    """A function of a library that calls another one."""
    names: dict[str, Any] = {"__name__": module, "function": function}
    exec(compile("def call():\n    function()", file, "exec"), names)  # noqa: S102
    return cast(Callable[[], None], names["call"])


def fails() -> None:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("module", "file"),
    [
        ("chatlanes.tasks.update", "/clone/chatlanes/tasks/update.py"),
        ("aiogram.dispatcher", "/venv/lib/python3.11/site-packages/aiogram/dispatcher.py"),
        ("asyncio.runners", asyncio.__file__),
    ],
)
def test_a_traceback_begins_with_the_bots_own_code(module: str, file: str) -> None:
    def own() -> None:
        library_call(module, file, fails)()  # a library between the bot's own functions is kept

    with pytest.raises(ValueError, match="no") as caught:
        library_call(module, file, own)()
    lines = traceback_of(caught.value, Secrets(), caught.tb.tb_next).splitlines()  # without the frame of this test
    assert lines[1].endswith(" in own")
    assert [line.rpartition(" in ")[2] for line in lines if line.startswith("  File")] == ["own", "call", "fails"]


def test_without_a_frame_of_the_bot_all_are_shown() -> None:
    with pytest.raises(ValueError, match="no") as caught:
        library_call("celery_lanes.x", "/clone/celery_lanes/x.py", fails)()
    inside = caught.tb.tb_next
    assert inside
    alone = TracebackType(None, inside.tb_frame, inside.tb_lasti, inside.tb_lineno)
    assert "/clone/celery_lanes/x.py" in traceback_of(caught.value, Secrets(), alone)


def test_a_syntax_error_shows_its_line() -> None:
    def imports() -> None:
        compile("def handle(:", "/home/me/mybot.py", "exec")

    with pytest.raises(SyntaxError) as caught:
        library_call("chatlanes.settings.imports", "/clone/chatlanes/settings/imports.py", imports)()
    inside = caught.tb.tb_next
    assert inside
    alone = TracebackType(None, inside.tb_frame, inside.tb_lasti, inside.tb_lineno)
    lines = traceback_of(caught.value, Secrets(), alone).splitlines()
    assert lines[0].strip() == 'File "/home/me/mybot.py", line 1'
    assert lines[-1].startswith("SyntaxError: ")
