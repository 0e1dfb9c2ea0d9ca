"""The processes of a chaos run: starts them, kills them in every way, and remembers when each of them died or froze.

Each part runs in a process group of its own, so that it can die like a machine: all at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from chaos.checker import Freeze

#: A warm shutdown waits for running handlers; one that takes longer than this hangs.
STOP_WITHIN_S = 60.0


@dataclass
class Fleet:
    """`commands` are those of the parts, by name, `environment` is what each gets; logs go to files in `folder`."""

    commands: dict[str, list[str]]
    environment: dict[str, str]
    folder: Path
    killed: dict[int, float] = field(default_factory=dict)
    freezes: list[Freeze] = field(default_factory=list)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str) -> None:
        with self._log(name) as log:
            self._processes[name] = subprocess.Popen(
                self.commands[name], env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def ensure_running(self, name: str) -> None:
        """Start it again if it has ended."""
        process = self._processes.get(name)
        if process is None or process.poll() is not None:
            self.start(name)

    def pids(self, name: str) -> list[int]:
        """The process and its children, the process first."""
        main = self._processes[name].pid
        return [main, *(pid for pid in _children(main) if pid != main)]

    def kill_all(self, name: str) -> None:
        """SIGKILL for the process and its children, as when the machine dies."""
        pids = self.pids(name)
        os.killpg(self._processes[name].pid, signal.SIGKILL)
        self._died(pids)
        self._processes[name].wait()

    def kill_main(self, name: str) -> None:
        """SIGKILL for the main process alone; its children must follow by themselves."""
        pids = self.pids(name)
        os.kill(pids[0], signal.SIGKILL)
        self._processes[name].wait()
        self._died(pids)

    def kill_child(self, name: str, which: int) -> None:
        """SIGKILL for one child, as when it runs out of memory."""
        children = self.pids(name)[1:]
        if children:
            pid = children[which % len(children)]
            os.kill(pid, signal.SIGKILL)
            self._died([pid])

    def freeze(self, name: str, for_s: float) -> None:
        """SIGSTOP and, later, SIGCONT for the process and its children."""
        pids, group = self.pids(name), self._processes[name].pid
        from_s = time.monotonic()
        os.killpg(group, signal.SIGSTOP)
        time.sleep(for_s)
        os.killpg(group, signal.SIGCONT)
        self.freezes += [Freeze(pid, from_s, time.monotonic()) for pid in pids]

    def stop(self, name: str) -> None:
        """SIGTERM, and wait. Raises TimeoutExpired for one that hangs."""
        process = self._processes[name]
        process.terminate()
        process.wait(STOP_WITHIN_S)

    def end(self) -> None:
        """Whatever still runs is killed."""
        for process in self._processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _died(self, pids: list[int]) -> None:
        now_s = time.monotonic()
        self.killed.update(dict.fromkeys(pids, now_s))

    def _log(self, name: str) -> IO[bytes]:
        return (self.folder / f"{name}.log").open("ab")


def _children(parent: int) -> list[int]:
    """Processes of a group, which is named after its first one (proc_pid_stat(5): fields 1 and 5)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:  # it has just ended
                continue
            if int(stat.rpartition(")")[2].split()[2]) == parent:
                found.append(int(entry.name))
    return sorted(found)
