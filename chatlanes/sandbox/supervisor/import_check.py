"""Imports the bot before the workers do, and again when its files change or the page asks for it.

Workers that run keep the old bot while the changed one cannot be imported; the page and the terminal show why.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from chatlanes.sandbox.parts import PYTHON
from chatlanes.sandbox.supervisor.child_process import ChildProcess
from chatlanes.sandbox.supervisor.file_watcher import FileWatcher
from chatlanes.sandbox.supervisor.managed_part import ManagedPart
from chatlanes.sandbox.supervisor.output import Output
from chatlanes.sandbox.supervisor.page_channel import PageChannel

NAME = "bot"
#: Between two checks of the files.
LOOK_EVERY_S = 1.0
#: The import itself prints a warning a little earlier (chatlanes/settings/imports.py).
LONG_IMPORT_S = 25.0


@dataclass(frozen=True)
class WorkerActions:
    """What the supervisor does next: kill the workers named in `kill`; with `restart`, restart all."""

    kill: frozenset[str] = frozenset()
    restart: bool = False


@dataclass
class ImportCheck:
    """`follows_edits`: the bot is imported again after every change of its files, not only while it is broken."""

    line: PageChannel
    bot: str
    environment: Mapping[str, str]
    follows_edits: bool = False

    _check: ChildProcess | None = field(default=None, init=False)
    _is_wanted: bool = field(default=True, init=False)
    _is_broken: bool = field(default=False, init=False)
    _look_at_s: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._files = FileWatcher(Path.cwd())

    def poll(self, workers: Mapping[str, ManagedPart], output: Output) -> WorkerActions:
        """One step: sends the workers' state to the page, reads its orders, imports the bot if needed. Never blocks."""
        self.line.send_workers([_shown(name, managed) for name, managed in workers.items()])
        orders = self.line.orders() or []
        self._is_wanted = self._is_wanted or self._is_edited() or any(order.get("restart") for order in orders)
        kill = frozenset(str(order["kill"]) for order in orders if "kill" in order)
        return WorkerActions(kill, restart=self._try(output))

    def worker_failed(self, name: str, said: list[str]) -> None:
        """A worker ended with an error of its own."""
        self._is_broken = True
        title = next((line for line in reversed(said) if line.strip()), "it said nothing")
        self.line.send_problem("worker", f"{name} cannot start: {title}", "\n".join(said))

    def close(self) -> None:
        if self._check:
            self._check.kill()
            self._check.wait()
            self._check.close()
            self._check = None

    def _is_edited(self) -> bool:
        if not (self._is_broken or self.follows_edits) or time.monotonic() < self._look_at_s:
            return False
        self._look_at_s = time.monotonic() + LOOK_EVERY_S
        return self._files.have_changed()

    def _try(self, output: Output) -> bool:
        """True if the bot has just been imported without an error."""
        if self._is_wanted:
            self.close()  # an import may never end
            self._is_wanted = self._is_broken = False
            self._files.have_changed()  # changes during the import count
            self._check = ChildProcess((*PYTHON, "chatlanes.sandbox.check_bot", self.bot), self.environment)
        if self._check is None:
            return False
        code = self._check.ended()
        self._check.lines()
        if code is None:
            self._wait(output, self._check)
            return False
        said = list(self._check.said)
        self.close()
        self._is_broken = code != 0
        if self._is_broken:
            self._report(output, said or [f"BOT={self.bot} cannot be imported (code {code})."])
        else:
            self.line.send_solved()
        return not self._is_broken

    def _wait(self, output: Output, check: ChildProcess) -> None:
        """Reports an import that takes long."""
        if not self._is_broken and time.monotonic() - check.started_s > LONG_IMPORT_S:
            self._is_broken = True
            self._report(output, list(check.said) or [f"BOT={self.bot} is still being imported."])

    def _report(self, output: Output, said: list[str]) -> None:
        output.say(NAME, *said)
        output.log("the workers start when the bot has been mended (its files are watched)")
        self.line.send_problem("import", said[-1], "\n".join(said[:-1]))


def _shown(name: str, managed: ManagedPart) -> dict[str, object]:
    return {
        "name": name,
        "pid": managed.running.pid if managed.running else None,
        "alive": managed.running is not None,
        "killed": managed.killed,
    }
