"""What every bot of these tests does with a message, whatever framework it is written in.

Promises the same history for all of them (tests/support/history.py). A bot says each text that `said` gives, and waits
a moment for each None; its framework's own conversation begins with `ask` and ends with the next message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from chatlanes.bot import current
from tests.support import bots

TOKEN = os.environ.get("BOT_TOKEN", "1:none")
#: How long the moment is.
MOMENT_S = 0.005

QUESTION = "Your name?"
GREETING = "Hello"


def said(text: str) -> Iterator[str | None]:
    """`fails`, `three` (texts one after the other), `waits` (for the test), and the message's `#<n>`."""
    ctx = current()
    bots.record("start", ctx)
    if text.startswith("fails"):
        bots.record("raise", ctx)
        raise RuntimeError(f"attempt {ctx.attempt}")
    if text.startswith("three"):
        yield from ("part 1", "part 2", "part 3")
    if text.startswith("waits"):
        while not Path(os.environ[bots.GATES], "gate").exists():
            yield None
    yield from re.findall(r"#\d+", text)
    bots.record("end", ctx)


def greeted(greeting: str, name: str) -> str:
    """With the worker that says it."""
    return f"{greeting} {name} from {os.environ[bots.WORKER]}"


def note(what: str) -> None:
    """That this happened in this process."""
    with Path(os.environ[bots.GATES], what).open("a") as file:
        file.write(f"{os.getpid()}\n")
