"""Imports the bot again when its files change or the page asks for it, before the workers restart with it.

Workers that run keep the code they have while the changed bot cannot be imported; the page and the terminal show why.
The first import is that of the first worker.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chatlanes_sandbox.channel import PageChannel
from chatlanes_sandbox.plan import PYTHON
from chatlanes_sandbox.supervisor.child_process import ChildProcess, ManagedPart
from chatlanes_sandbox.supervisor.output import Output

#: A folder with more files is not a bot's; the rest is not watched.
MOST_FILES = 5_000
IGNORED = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})


class FileWatcher:
    """Notices changes of the Python and .env files below a folder, by their modification times, since the previous
    check. Installed packages and hidden folders are not watched.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._scan()

    def have_changed(self) -> bool:
        seen, self._seen = self._seen, self._scan()
        return seen != self._seen

    def _scan(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for folder, inside, names in os.walk(self._folder):
            inside[:] = [name for name in inside if not name.startswith(".") and name not in IGNORED]
            for name in names:
                if name.endswith((".py", ".env")) or name == ".env":
                    file = os.path.join(folder, name)
                    try:
                        found[file] = os.stat(file).st_mtime_ns
                    except OSError:
                        continue
            if len(found) > MOST_FILES:
                break
        return found


NAME = "bot"
#: Between two checks of the files.
LOOK_EVERY_S = 1.0
#: The import itself prints a warning a little earlier (chatlanes/settings/imports.py).
LONG_IMPORT_S = 25.0
#: Where a traceback begins in the output of a process; that of a syntax error has no first line.
TRACEBACK = ("Traceback (most recent call last):", '  File "')


@dataclass(frozen=True)
class WorkerActions:
    """The next actions of the supervisor: kill the workers named in `kill`; with `restart`, restart all."""

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
    _is_wanted: bool = field(default=False, init=False)
    _is_broken: bool = field(default=False, init=False)
    _look_at_s: float = field(default=0.0, init=False)
    #: When the code that the workers run was imported, Unix seconds; None: no worker has been ready.
    _good_since_s: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._files = FileWatcher(Path.cwd())

    def poll(self, workers: Mapping[str, ManagedPart], output: Output) -> WorkerActions:
        """One step: sends the workers' state to the page, reads its orders, imports the bot if needed. Never blocks."""
        self.line.send_workers([_shown(name, managed) for name, managed in workers.items()])
        orders = self.line.orders() or []
        self._is_wanted = self._is_wanted or self._is_edited() or any(order.get("restart") for order in orders)
        kill = frozenset(str(order["kill"]) for order in orders if "kill" in order)
        running = [name for name, managed in workers.items() if managed.running]
        if self._good_since_s is None:
            self._watch_first_import([each.running for each in workers.values() if each.running], output)
        return WorkerActions(kill, restart=self._try(running, output))

    def worker_ready(self) -> None:
        if self._good_since_s is None:
            self._good_since_s = time.time()
            if self._is_broken and self._check is None:  # the import took long, and has ended
                self._is_broken = False
                self.line.send_solved()

    def worker_failed(self, name: str, said: list[str], output: Output) -> None:
        """A worker ended with an error of its own."""
        was_broken, self._is_broken = self._is_broken, True
        title = next((line for line in reversed(said) if line.strip()), "it wrote nothing")
        if not title.startswith(f"BOT={self.bot}"):
            self.line.send_problem("worker", f"{name} cannot start: {title}", "\n".join(said))
        elif not was_broken:
            output.log("the workers start when the bot can be imported (its files are watched)")
            self.line.send_problem("import", title, _traceback_in(said))

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

    def _watch_first_import(self, running: Sequence[ChildProcess], output: Output) -> None:
        for process in running:
            if not self._is_broken and time.monotonic() - process.started_s > LONG_IMPORT_S:
                self._is_broken = True
                self._report([], output, [*process.said, f"BOT={self.bot} is still being imported."])

    def _try(self, running: Sequence[str], output: Output) -> bool:
        """True if the bot has just been imported without an error. `running` are the workers that run."""
        if self._is_wanted:
            self.close()  # an import may never end
            self._is_wanted = self._is_broken = False
            self._files.have_changed()  # changes during the import count
            output.log(f"loading {self.bot} …")
            self._check = ChildProcess((*PYTHON, "chatlanes_sandbox.check_bot", self.bot), self.environment)
        if self._check is None:
            return False
        code = self._check.ended()
        self._check.lines()
        said = list(self._check.said)
        if code is None:
            if not self._is_broken and time.monotonic() - self._check.started_s > LONG_IMPORT_S:
                self._is_broken = True
                sentence = f"BOT={self.bot} is still being imported."
                self._report(running, output, said or [sentence])
            return False
        self.close()
        self._is_broken = code != 0
        if self._is_broken:
            sentence = f"BOT={self.bot} cannot be imported (code {code})."
            self._report(running, output, said or [sentence])
        else:
            self._good_since_s = time.time()
            self.line.send_solved()
        return not self._is_broken

    def _report(self, running: Sequence[str], output: Output, said: list[str]) -> None:
        output.say(NAME, *said)
        since_s = self._good_since_s if running else None
        if since_s is None:
            output.log("the workers start when the bot can be imported (its files are watched)")
        else:
            clock = time.strftime("%H:%M:%S", time.localtime(since_s))
            verb = "runs" if len(running) == 1 else "run"
            output.log(f"{' and '.join(running)} still {verb} the code of {clock}, the last that could be imported")
            output.log("the workers restart when the bot can be imported again (its files are watched)")
        self.line.send_problem("import", said[-1], _traceback_in(said[:-1]), runs_since_s=since_s)


def _traceback_in(said: Sequence[str]) -> str:
    """Without the lines before the traceback, if there is one, and without the sentence behind it."""
    first = next((place for place, line in enumerate(said) if line.startswith(TRACEBACK)), 0)
    kept = [*said[first:]]
    while kept and (not kept[-1].strip() or kept[-1].startswith("BOT=")):
        kept.pop()
    return "\n".join(kept)


def _shown(name: str, managed: ManagedPart) -> dict[str, object]:
    return {
        "name": name,
        "pid": managed.running.pid if managed.running else None,
        "alive": managed.running is not None and not managed.killed,
        "killed": managed.killed,
    }
