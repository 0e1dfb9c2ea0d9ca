"""The processes of a chaos run: starts, kills, freezes and stops them, and records the kills.

Each part runs in its own process group, so that all of it can be killed at once, like a machine. `restart_ended`
restarts every part that has ended; nothing survives `end`, or a kill of the thread that started it.
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

from celery_lanes.embedded_server import terminate_with_parent

#: A warm shutdown waits for running handlers; a longer one counts as a hang.
STOP_WITHIN_S = 60.0


@dataclass
class Processes:
    """`commands` and `environments` of the parts, by name; logs are files in `folder`.

    `started` maps the process id of every main process to its part.
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
                self.commands[name],
                env=self.environments[name],
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=terminate_with_parent(signal.SIGKILL),
            )
        self.started[self._processes[name].pid] = name

    def restart_ended(self) -> None:
        """Restarts every part that has ended; kills a part that hangs in its shutdown."""
        for name, process in list(self._processes.items()):
            if process.poll() is None and time.monotonic() > self._stop_by_s.get(name, float("inf")):
                self.hung.append(f"{name} did not stop within {STOP_WITHIN_S:.0f} s")
                self.kill_all(name)
            if process.poll() is not None:
                self._stop_by_s.pop(name, None)
                self.start(name)

    def kill_all(self, name: str) -> tuple[int, ...]:
        """SIGKILL to the process and its children, as if the machine died."""
        pids = self._pids(name)
        self._signal_all(name, signal.SIGKILL)
        self._processes[name].wait()
        return pids

    def kill_main(self, name: str) -> tuple[int, ...]:
        """SIGKILL to the main process only; its children must exit by themselves."""
        pids = self._pids(name)
        self._processes[name].kill()
        self._processes[name].wait()
        return pids

    def kill_child(self, name: str, which: float) -> tuple[int, ...]:
        """SIGKILL to one child, as the out-of-memory killer does."""
        children = self._pids(name)[1:]
        if not children:
            return ()
        pid = children[int(which * len(children))]
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return (pid,)

    def pid(self, name: str) -> int:
        """The process id of the part's main process."""
        return self._processes[name].pid

    @property
    def is_whole(self) -> bool:
        """True if every part runs and no stop is pending."""
        return not self._stop_by_s and all(process.poll() is None for process in self._processes.values())

    def freeze(self, name: str) -> None:
        self._signal_all(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._signal_all(name, signal.SIGCONT)

    def stop(self, name: str) -> None:
        """SIGTERM; `restart_ended` waits for the exit and restarts the part."""
        self._processes[name].terminate()
        self._stop_by_s[name] = time.monotonic() + STOP_WITHIN_S

    def stop_together(self, within_s: Mapping[str, float], others_within_s: float) -> None:
        """SIGTERM to every part at once; each is killed if it exceeds its time."""
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

    def end_part(self, name: str) -> None:
        """Kills the part for good."""
        self.kill_all(name)
        del self._processes[name]

    def stop_everything(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for name, process in self._processes.items():
            try:
                process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                self.hung.append(f"{name} did not stop within {STOP_WITHIN_S:.0f} s at the end")

    def end(self) -> None:
        """Kills everything that still runs."""
        for name, process in self._processes.items():
            self._signal_all(name, signal.SIGKILL)
            process.wait()

    def _signal_all(self, name: str, what: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._processes[name].pid, what)

    def _pids(self, name: str) -> tuple[int, ...]:
        """The process ids of the part, the main process first."""
        main = self._processes[name].pid
        return (main, *(pid for pid in _members(main) if pid != main))

    def _log(self, name: str) -> IO[bytes]:
        return (self.folder / f"{name}.log").open("ab")


def _members(group: int) -> list[int]:
    """Processes of a group; the group id is that of its first process (proc_pid_stat(5): fields 1 and 5)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:  # the process has just ended
                continue
            if int(stat.rpartition(")")[2].split()[2]) == group:
                found.append(int(entry.name))
    return sorted(found)
