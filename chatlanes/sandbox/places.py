"""The place of each part: what runs there now, and when the next one starts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from chatlanes.sandbox.ends import SHORT_LIFE_S, Hold, StartAgain, StopAll, decide
from chatlanes.sandbox.parts import Part
from chatlanes.sandbox.running import Running

NEVER = float("inf")


@dataclass
class Place:
    """`start_at_s` is of the monotonic clock; NEVER: not before somebody says so."""

    part: Part
    environment: Mapping[str, str]
    start_at_s: float = 0.0
    running: Running | None = None
    short_lives: int = 0
    #: On purpose, and its successor is not up yet.
    killed: bool = False

    @property
    def is_due(self) -> bool:
        return self.running is None and time.monotonic() >= self.start_at_s

    def start(self) -> Running:
        self.running = Running(self.part.command, self.environment)
        self.start_at_s = NEVER
        self.killed = False
        return self.running

    def has_ended(self, code: int, *, may_be_mended: bool) -> StartAgain | Hold | StopAll:
        """What runs here has; says what is done now."""
        assert self.running is not None  # noqa: S101 - else it could not end
        lived_s = time.monotonic() - self.running.started_s
        self.short_lives = self.short_lives + 1 if lived_s < SHORT_LIFE_S else 0
        self.running.close()
        self.running = None
        decision = decide(code, short_lives=self.short_lives, may_be_mended=may_be_mended)
        if isinstance(decision, StartAgain):
            self.start_at_s = time.monotonic() + decision.after_s
        return decision
