"""Runs a bot's own program until it polls: a `main` without parameters, or the file that BOT names.

A program stops for good where it would poll: its polling call never returns, so that no `except:` calls it again and no
`finally:` closes what the handlers use. It has a command line of its own (BOT_ARGS).
"""

from __future__ import annotations

import asyncio
import inspect
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial, wraps
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

from chatlanes.settings.bot_files import likely_path
from chatlanes.settings.imports import BotImportError, explained

#: Methods that poll. A coroutine that calls one by its name is a bot's main.
POLLING_CALLS = frozenset(
    ("polling", "infinity_polling", "run_webhooks", "start_polling", "run_polling", "start_webhook", "run_webhook")
)

_caller: ContextVar[greenlet | None] = ContextVar("where a program continues when it polls", default=None)
#: Programs that polled. One that was collected would be ended by an exception.
_stopped: list[greenlet] = []


class PollingRefused(SystemExit):
    """Raised instead of polling where the program cannot be stopped. A SystemExit, because bots retry other errors
    indefinitely, as network failures.

    `bot`: the object that would poll; for a dispatcher, a tuple with its bots.
    """

    def __init__(self, place: str, bot: Any) -> None:
        super().__init__(place)
        self.bot = bot


def until_polling(program: Callable[[], Any]) -> Any:
    """Run the program until it polls, and return what it polls with: an object, or the coroutine of an `async def main`
    that polls, which has not begun. A program that ends before returns its own result.
    """
    here = copy_context()
    here.run(_caller.set, getcurrent())
    running = greenlet(program)
    running.gr_context = here
    own, asyncio.run = asyncio.run, _run_or_stop(asyncio.run)
    try:
        found = running.switch()
    except PollingRefused as started:
        return started.bot
    finally:
        asyncio.run = own
    if not running.dead:
        _stopped.append(running)
    return found


def stop(bot: Any) -> None:
    """Stop the program that `until_polling` runs here. Returns if there is none, or if it is in an event loop."""
    caller = _caller.get()
    if caller is not None and asyncio._get_running_loop() is None:
        caller.switch(bot)


def run_file(setting: str, path: str) -> Any:
    """Run the file as Python runs a script, until it polls; returns what it polls with. Raises BotImportError."""
    file = Path(path).resolve()
    if not file.is_file():
        raise BotImportError(f"{setting}={path}: there is no file {file}; start in the directory that holds it.")
    sys.path.insert(0, str(file.parent))
    spec = spec_from_file_location("__main__", file)
    assert spec is not None  # noqa: S101  for a path that ends in .py
    assert spec.loader is not None  # noqa: S101  likewise
    # Kept: stored data names the classes of the script by this module.
    sys.modules["__main__"] = module = module_from_spec(spec)
    with explained(setting, path, f"running {file.name}", BotImportError):
        found = until_polling(partial(spec.loader.exec_module, module))
    if found is None:
        raise BotImportError(
            f"{setting}={path} ended without polling; name what handles its updates: {likely_path(path)}."
        )
    return found


@contextmanager
def command_line(label: str, arguments: str) -> Iterator[None]:
    """Wraps a bot's code. Raises BotImportError if it would end this process, as argparse does."""
    own, sys.argv = sys.argv, [label.partition("=")[2].partition(":")[0], *shlex.split(arguments)]
    try:
        yield
    except SystemExit as ended:
        raise BotImportError(
            f"{label} ended itself with SystemExit({ended.code}); its command line is the setting BOT_ARGS."
        ) from None
    finally:
        sys.argv = own


def _run_or_stop(own: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(own)
    def run(main: Any, *given: Any, **named: Any) -> Any:
        if inspect.iscoroutine(main) and not POLLING_CALLS.isdisjoint(main.cr_code.co_names):
            stop(main)
        try:
            return own(main, *given, **named)
        except PollingRefused as started:
            stop(started.bot)
            raise

    return run
