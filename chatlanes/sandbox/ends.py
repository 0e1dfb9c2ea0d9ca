"""What is done when a part has ended. Pure.

Promises that who was killed, or ended in good order because somebody else told it to, is started again; and that who
ended with a word of its own is heard: starting it again would only bury what it said.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Who lived shorter than this is not started again at once.
SHORT_LIFE_S = 10.0
LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True)
class StartAgain:
    after_s: float


@dataclass(frozen=True)
class Hold:
    """It waits until somebody has mended something."""


@dataclass(frozen=True)
class StopAll:
    """Nothing goes on without it."""


def decide(code: int, *, short_lives: int, may_be_mended: bool) -> StartAgain | Hold | StopAll:
    """`code` is negative for a signal. `short_lives` are those in a row, this one among them."""
    if code <= 0:
        pause_s = 0.0 if short_lives < 2 else min(2.0 ** (short_lives - 2), LONGEST_PAUSE_S)
        return StartAgain(pause_s)
    return Hold() if may_be_mended else StopAll()
