"""The text of an error: like Python's own, of bounded length and without secrets.

The bound holds for huge messages, deep recursion, long chains of causes and large groups. Raises nothing when the
error cannot be shown. Each traceback begins with the first frame of the bot's own code.
"""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from itertools import dropwhile
from types import FrameType, TracebackType
from typing import Any

from chatlanes.logs.foreign_text import indented
from chatlanes.logs.redaction import Secrets

#: Characters kept of a message, and of the end of a traceback: an error may contain a whole HTTP response.
LONGEST_MESSAGE, LONGEST_TRACEBACK = 2_000, 20_000
#: Frames of each error (the last ones), errors of a chain (the last ones), notes, members of a group (the first ones).
MOST_FRAMES, MOST_CAUSES, MOST_NOTES, MOST_MEMBERS = 100, 8, 10, 5
#: Groups within groups.
DEEPEST = 2
#: Marks each omission.
LEFT_OUT = "[left out: "

_LONGEST_LINE = 500
#: The packages of this repository.
_OURS = {"celery_lanes", "chatlanes", "chatlanes_sandbox"}
#: Folders of Python's own modules and of installed packages.
_LIBRARIES = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"


class HandlerError(Exception):
    """Replaces an error that is too large or contains a secret. Its text is that of the error, cut."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)

    def __str__(self) -> str:
        return ": ".join(self.args)

    def __repr__(self) -> str:
        kind, message = self.args
        return f"{kind}({message!r})"


def problem_of(error: BaseException, attempt: int, secrets: Secrets) -> dict[str, Any]:
    """The error as it is stored with dead letters. Raises nothing, whatever the error's own methods do."""
    stands_for = error.args if isinstance(error, HandlerError) else None
    kind, message = stands_for or (type(error).__name__, message_of(error, secrets))
    return {
        "type": kind,
        "message": message,
        "attempt": attempt,
        "traceback": traceback_of(error, secrets),
    }


def message_of(error: BaseException, secrets: Secrets) -> str:
    try:
        text = str(error)
    except Exception as trouble:
        return f"(no message: its __str__ raised {type(trouble).__name__})"
    return bounded(text, secrets, LONGEST_MESSAGE)


def traceback_of(error: BaseException, secrets: Secrets, at: TracebackType | None = None, depth: int = DEEPEST) -> str:
    """With its causes, the last error at the end, each from the first frame of the bot's own code on.

    `at`: the frames to show of it, if not its own.
    """
    parts: list[str] = []
    for number, (each, link) in enumerate(_chain(error)):
        if number == MOST_CAUSES:
            parts.append(f"{LEFT_OUT}earlier errors]\n{link}")
            break
        frames = at if at is not None and number == 0 else each.__traceback__
        parts.append("".join(_one(each, frames, secrets, depth)) + link)
    text = secrets.cut("".join(reversed(parts)))
    if len(text) <= LONGEST_TRACEBACK:
        return text
    return f"{LEFT_OUT}the beginning]\n{secrets.tail(text, LONGEST_TRACEBACK)}"


def _chain(error: BaseException) -> Iterator[tuple[BaseException, str]]:
    """From the last to the first, each with the text that links it to the error after it."""
    seen, link = set[int](), ""
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following, link
        if following.__cause__ is not None:
            following, link = following.__cause__, _CAUSE
        else:
            following, link = (None if following.__suppress_context__ else following.__context__), _CONTEXT


def from_own_frame(at: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame of the bot's own code on; None: no frame is of its own."""
    while at is not None and _is_of_a_library(at.tb_frame):
        at = at.tb_next
    return at


def stack_of(frame: FrameType) -> str:
    """Where a running frame is, from the first frame of the bot's own code on; all frames if none is its own."""
    frames = [each for each, _ in traceback.walk_stack(frame)][::-1]
    own = list(dropwhile(_is_of_a_library, frames)) or frames
    return "".join(traceback.StackSummary.extract((each, each.f_lineno) for each in own).format())


def own_frames(frames: Iterable[FrameType]) -> list[FrameType]:
    """Those of the bot's own code."""
    return [frame for frame in frames if not _is_of_a_library(frame)]


def _is_of_a_library(frame: FrameType) -> bool:
    module, file = str(frame.f_globals.get("__name__")), frame.f_code.co_filename
    if module.startswith("chatlanes.demo."):
        return False
    if module.partition(".")[0] in _OURS or file.startswith(("<frozen", *_LIBRARIES)):
        return True
    return any(folder in file for folder in _PACKAGES)


def _frames_shown(error: BaseException, at: TracebackType | None) -> TracebackType | None:
    """All of them if none is of the bot's own code, unless the error's text says more than they do, as ours do."""
    own = from_own_frame(at)
    is_ours = type(error).__module__.partition(".")[0] in _OURS
    return own if own or is_ours or isinstance(error, SyntaxError) else at


def _one(error: BaseException, at: TracebackType | None, secrets: Secrets, depth: int) -> Iterator[str]:
    at = _frames_shown(error, at)
    if at is not None:
        yield "Traceback (most recent call last):\n"
        if _is_longer(at, MOST_FRAMES):
            yield f"  {LEFT_OUT}earlier frames]\n"
        for frame in traceback.format_tb(at, limit=-MOST_FRAMES):
            yield "\n".join(line[:_LONGEST_LINE] for line in frame.split("\n"))
    if isinstance(error, SyntaxError):
        yield from traceback.format_exception_only(error)  # with the line, which no frame has
        return
    kind, message = type(error), message_of(error, secrets)
    module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    name = f"{module}{kind.__qualname__}"
    yield f"{name}: {indented(message)}\n" if message else f"{name}\n"
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list):
        for note in notes[:MOST_NOTES]:
            yield indented(bounded(note if isinstance(note, str) else "(a note)", secrets, LONGEST_TRACEBACK)) + "\n"
    if isinstance(error, BaseExceptionGroup):
        yield from _members(error, secrets, depth)


def _members(group: BaseExceptionGroup[BaseException], secrets: Secrets, depth: int) -> Iterator[str]:
    if depth:
        for number, member in enumerate(group.exceptions[:MOST_MEMBERS], start=1):
            yield f"  +---------------- {number} ----------------\n"
            for line in traceback_of(member, secrets, depth=depth - 1).splitlines():
                yield f"  | {line}\n"
    left_out = len(group.exceptions) - (MOST_MEMBERS if depth else 0)
    if left_out > 0:
        yield f"  | {LEFT_OUT}{left_out:,} errors of the group]\n"


def bounded(text: str, secrets: Secrets, limit: int) -> str:
    """The beginning of a text."""
    if len(text) <= limit:
        return secrets.cut(text)
    return f"{secrets.head(text, limit)} {LEFT_OUT}{len(text) - limit:,} characters]"


def _is_longer(at: TracebackType | None, frames: int) -> bool:
    while at is not None and frames:
        at, frames = at.tb_next, frames - 1
    return at is not None
