"""The state of one part: its process, and when to start the next one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from chatlanes.sandbox.parts import Part
from chatlanes.sandbox.supervisor.child_process import ChildProcess
from chatlanes.sandbox.supervisor.restart_policy import SHORT_LIFE_S, Restart, StopAll, WaitForFix, decide

NEVER = float("inf")


@dataclass
class ManagedPart:
    """`start_at_s` is a time of the monotonic clock; NEVER: until `restart`."""

    part: Part
    environment: Mapping[str, str]
    start_at_s: float = 0.0
    running: ChildProcess | None = None
    short_lives: int = 0
    #: Killed on request of the page, and not restarted yet.
    killed: bool = False

    @property
    def is_due(self) -> bool:
        return self.running is None and time.monotonic() >= self.start_at_s

    def start(self) -> ChildProcess:
        self.running = ChildProcess(self.part.command, self.environment)
        self.start_at_s = NEVER
        self.killed = False
        return self.running

    def kill(self) -> None:
        """On request of the page."""
        if self.running:
            self.killed = True
            self.running.kill()

    def restart(self) -> None:
        """Start at once, or after the end of the process that runs."""
        self.short_lives = 0
        if self.running is None:
            self.start_at_s = 0.0

    def handle_exit(self, code: int, *, may_be_fixed: bool) -> Restart | WaitForFix | StopAll:
        """The process has ended with this code. Returns what happens next."""
        assert self.running is not None  # noqa: S101 - only a process that runs can end
        lived_s = time.monotonic() - self.running.started_s
        self.short_lives = self.short_lives + 1 if lived_s < SHORT_LIFE_S else 0
        self.running.close()
        self.running = None
        decision = decide(code, short_lives=self.short_lives, may_be_fixed=may_be_fixed)
        if isinstance(decision, Restart):
            self.start_at_s = time.monotonic() + decision.after_s
        return decision
