"""The script that all bots of these tests follow, in every framework.

All of them produce the same history (tests/support/history.py). A bot sends each text that `said` yields, and waits a
moment for each None; its framework's own conversation begins with `ask` and ends with the next message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from chatlanes.bot import current
from tests.support import bots

TOKEN = os.environ.get("BOT_TOKEN", "1:none")
#: The length of that moment.
MOMENT_S = 0.005

QUESTION = "Your name?"
GREETING = "Hello"


def said(text: str) -> Iterator[str | None]:
    """Handles `fails`, `three` (three texts), `waits` (until the test opens the gate), and the message's `#<n>`."""
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
    """The greeting, with the name of the worker that sends it."""
    return f"{greeting} {name} from {os.environ[bots.WORKER]}"


def note(what: str) -> None:
    """Record an event of this process."""
    with Path(os.environ[bots.GATES], what).open("a") as file:
        file.write(f"{os.getpid()}\n")
