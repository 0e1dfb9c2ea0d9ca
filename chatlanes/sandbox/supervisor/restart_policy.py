"""Decides what happens when a part has ended. Pure.

A part that was killed or ended with code 0 is restarted. One that ended with an error is not: a restart would bury its
message.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Who lived shorter than this is not started again at once.
SHORT_LIFE_S = 10.0
LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True)
class Restart:
    after_s: float


@dataclass(frozen=True)
class WaitForFix:
    """It waits until somebody has mended something."""


@dataclass(frozen=True)
class StopAll:
    """Nothing goes on without it."""


def decide(code: int, *, short_lives: int, may_be_fixed: bool) -> Restart | WaitForFix | StopAll:
    """`code` is negative for a signal. `short_lives` are those in a row, this one among them."""
    if code <= 0:
        pause_s = 0.0 if short_lives < 2 else min(2.0 ** (short_lives - 2), LONGEST_PAUSE_S)
        return Restart(pause_s)
    return WaitForFix() if may_be_fixed else StopAll()
