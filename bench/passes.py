"""python -m bench.passes: the files of this repository that one update passes, in a poller, in a worker and in Lua.

A poller and a worker run as usual, with a profile function that records files while a window is open. The first update
warms both up, so that set-up is not counted. Then a window is open for each of a few updates, from its arrival until it
is settled and confirmed to Telegram; a file counts if each of these updates passes it, because periodic work, such as
the renewal of a lease, falls into some of the windows only.
"""

from __future__ import annotations

import mmap
import os
import runpy
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from redis import Redis

from bench.measure.harness import ROOT, Harness
from bench.measure.scale import QUICK
from celery_lanes.protocol import connect, keys
from celery_lanes.protocol.scripts import chunks
from chatlanes_sandbox.simulator import Simulator, start

#: The most files that one update may pass.
MOST_PYTHON, MOST_LUA = 60, 14

#: The packages whose files count.
PACKAGES = ("chatlanes/", "packages/celery-lanes/celery_lanes/")
#: The scripts of an update with one call: stored, fetched and settled, its call journaled, its data stored.
SCRIPTS = ("append", "turn", "begin", "end", "commit")

TOKEN = "1:PASSES"
UPDATES = 5
WITHIN_S = 30.0


class Passed(NamedTuple):
    """The files of one update."""

    poller: set[str]
    worker: set[str]
    lua: set[str]

    @property
    def python(self) -> set[str]:
        return self.poller | self.worker


def handle(ctx: Any) -> None:
    """The bot."""
    ctx.reply("an answer")


def measure(pool: str = "prefork") -> Passed:
    """The files of one update, with this pool of the worker; prefork passes the most."""
    with tempfile.TemporaryDirectory(prefix="passes-") as directory, ExitStack() as started:
        harness = Harness(Path(directory), QUICK)
        window = Window(harness.directory / "window")
        simulator = started.enter_context(start(TOKEN))
        client = started.enter_context(connect(url := started.enter_context(harness.server("redis"))))
        environment = {"BOT_TOKEN": TOKEN, "BOT_API_URL": simulator.url, "REDIS_URL": url, "BOT": "bench.passes:handle"}
        for name, *command in (
            ["worker", "celery", "-A", "chatlanes", "worker", "-P", pool, "-c", "1", "--without-mingle"],
            ["poller", "chatlanes.poller"],
        ):
            started.enter_context(harness.child(name, "bench.passes", str(window.file), name, *command, **environment))
        for number in range(UPDATES + 1):
            window.open(number)
            _run_one(simulator, client, number + 1)
            window.open(0)
        return Passed(_passed(harness.directory / "poller.files"), _passed(harness.directory / "worker.files"), _lua())


def _run_one(simulator: Simulator, client: Redis, total: int) -> None:
    chat = {"id": 1, "type": "private"}
    sender = {"id": 1, "is_bot": False, "first_name": "Ann"}
    simulator.push({"message": {"message_id": total, "date": 0, "chat": chat, "from": sender, "text": "a question"}})
    _until(lambda: int(client.hget(keys.COUNTS, "settled") or 0) == simulator.stats()["confirmed"] == total)


def _until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"an update was not settled within {WITHIN_S} s")
        time.sleep(0.01)


def _passed(file: Path) -> set[str]:
    """The files that were recorded in every window."""
    recorded = [line.split(" ", 1) for line in file.read_text().splitlines()]
    return set.intersection(
        *({path for window, path in recorded if int(window) == number} for number in range(1, UPDATES + 1))
    )


def _lua() -> set[str]:
    return {"lib/prelude"}.union(*({script, *(f"lib/{each}" for each in chunks(script))} for script in SCRIPTS))


class Window:
    """The number of the window that is open, shared between processes; 0 if none is."""

    def __init__(self, file: Path) -> None:
        self.file = file
        if not file.exists():
            file.write_bytes(b"\0")
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), 1)

    def open(self, number: int) -> None:
        self._memory[0] = number

    def now(self) -> int:
        return self._memory[0]


def _record(window: Window, output: int) -> None:
    """Write each file of the project whose functions are called from now on, once for each window, in all threads."""
    known: set[tuple[int, str]] = set()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        number = window.now()
        if not number or event != "call" or frame.f_code.co_name == "<module>":
            return
        for code in (frame.f_code, frame.f_back and frame.f_back.f_code):  # the loop that calls began before the window
            if code and (path := _path(code.co_filename)) and (number, path) not in known:
                known.add((number, path))
                os.write(output, f"{number} {path}\n".encode())

    threading.setprofile(profile)
    sys.setprofile(profile)


@cache
def _path(name: str) -> str:
    path = name.removeprefix(f"{ROOT}/")
    return path if path.startswith(PACKAGES) else ""


def _child(window: str, name: str, module: str, *arguments: str) -> None:
    """One of the two processes."""
    files = Path(window).with_name(f"{name}.files")
    _record(Window(Path(window)), os.open(files, os.O_CREAT | os.O_WRONLY | os.O_APPEND))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _main() -> None:
    passed = measure()
    for title, files in (("poller", passed.poller), ("worker", passed.worker), ("Lua", passed.lua)):
        print(f"{title}: {len(files)}", *(f"  {file}" for file in sorted(files)), sep="\n")
    print(f"Python, distinct: {len(passed.python)} of at most {MOST_PYTHON}; Lua: {len(passed.lua)} of {MOST_LUA}")


if __name__ == "__main__":
    _child(*sys.argv[1:]) if sys.argv[1:] else _main()
