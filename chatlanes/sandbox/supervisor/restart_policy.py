"""Decides what happens when a part has ended. Pure.

A part that was killed or ended with code 0 is restarted. One that ended with an error is not: a restart would bury its
message.
"""

from __future__ import annotations

from dataclasses import dataclass

#: A part that ran for less than this is restarted after a pause, from the second time on.
SHORT_LIFE_S = 10.0
LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True)
class Restart:
    after_s: float


@dataclass(frozen=True)
class WaitForFix:
    """The part stays down until the bot is fixed."""


@dataclass(frozen=True)
class StopAll:
    """The others cannot work without it."""


def decide(code: int, *, short_lives: int, may_be_fixed: bool) -> Restart | WaitForFix | StopAll:
    """`code` is negative for a signal. `short_lives`: how many runs in a row were short, this one included."""
    if code <= 0:
        pause_s = 0.0 if short_lives < 2 else min(2.0 ** (short_lives - 2), LONGEST_PAUSE_S)
        return Restart(pause_s)
    return WaitForFix() if may_be_fixed else StopAll()
