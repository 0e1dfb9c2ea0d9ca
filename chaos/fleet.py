"""The processes of a chaos run: starts them, strikes them in every way, and remembers whom it killed when.

Each part runs in a process group of its own, so that it can die like a machine: all at once. Promises to start again
whatever has ended (`tend`), and that nothing of it outlives `end`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

#: A warm shutdown waits for running handlers; one that takes longer than this hangs.
STOP_WITHIN_S = 60.0


@dataclass
class Fleet:
    """`commands` and `environments` are those of the parts, by name; logs go to files in `folder`.

    `started` names every main process there has been, by its id.
    """

    commands: dict[str, list[str]]
    environments: dict[str, dict[str, str]]
    folder: Path
    hung: list[str] = field(default_factory=list)
    started: dict[int, str] = field(default_factory=dict)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _stop_by_s: dict[str, float] = field(default_factory=dict)

    def start(self, name: str) -> None:
        with self._log(name) as log:
            self._processes[name] = subprocess.Popen(
                self.commands[name], env=self.environments[name], stdout=log, stderr=log, start_new_session=True
            )
        self.started[self._processes[name].pid] = name

    def tend(self) -> None:
        """Start again whatever has ended; kill what was told to stop and hangs."""
        for name, process in list(self._processes.items()):
            if process.poll() is None and time.monotonic() > self._stop_by_s.get(name, float("inf")):
                self.hung.append(f"{name} did not stop within {STOP_WITHIN_S:.0f} s")
                self.kill_all(name)
            if process.poll() is not None:
                self._stop_by_s.pop(name, None)
                self.start(name)

    def kill_all(self, name: str) -> tuple[int, ...]:
        """SIGKILL for the process and its children, as when the machine dies."""
        pids = self._pids(name)
        self._signal_all(name, signal.SIGKILL)
        self._processes[name].wait()
        return pids

    def kill_main(self, name: str) -> tuple[int, ...]:
        """SIGKILL for the main process alone; its children must follow by themselves."""
        pids = self._pids(name)
        self._processes[name].kill()
        self._processes[name].wait()
        return pids

    def kill_child(self, name: str, which: float) -> tuple[int, ...]:
        """SIGKILL for one child, as when it runs out of memory."""
        children = self._pids(name)[1:]
        if not children:
            return ()
        pid = children[int(which * len(children))]
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return (pid,)

    def pid(self, name: str) -> int:
        """Of its main process."""
        return self._processes[name].pid

    @property
    def is_whole(self) -> bool:
        """Every part runs, and none was told to stop."""
        return not self._stop_by_s and all(process.poll() is None for process in self._processes.values())

    def freeze(self, name: str) -> None:
        self._signal_all(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._signal_all(name, signal.SIGCONT)

    def stop(self, name: str) -> None:
        """SIGTERM; `tend` sees to it."""
        self._processes[name].terminate()
        self._stop_by_s[name] = time.monotonic() + STOP_WITHIN_S

    def stop_together(self, within_s: Mapping[str, float], others_within_s: float) -> None:
        """SIGTERM for every part, while nothing else strikes: each has its time, and is killed after it."""
        began_s = time.monotonic()
        for name in self._processes:
            self.thaw(name)
            self._processes[name].terminate()
        for name, process in self._processes.items():
            for_s = within_s.get(name, others_within_s)
            try:
                process.wait(max(began_s + for_s - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                self.hung.append(f"{name} did not stop within {for_s:.0f} s while Redis was frozen")
                self.kill_all(name)

    def stop_everything(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for name, process in self._processes.items():
            try:
                process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                self.hung.append(f"{name} did not stop within {STOP_WITHIN_S:.0f} s at the end")

    def end(self) -> None:
        """Whatever still runs is killed."""
        for name, process in self._processes.items():
            self._signal_all(name, signal.SIGKILL)
            process.wait()

    def _signal_all(self, name: str, what: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._processes[name].pid, what)

    def _pids(self, name: str) -> tuple[int, ...]:
        """The process and its children, the process first."""
        main = self._processes[name].pid
        return (main, *(pid for pid in _members(main) if pid != main))

    def _log(self, name: str) -> IO[bytes]:
        return (self.folder / f"{name}.log").open("ab")


def _members(group: int) -> list[int]:
    """Processes of a group, which is named after its first one (proc_pid_stat(5): fields 1 and 5)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:  # it has just ended
                continue
            if int(stat.rpartition(")")[2].split()[2]) == group:
                found.append(int(entry.name))
    return sorted(found)
