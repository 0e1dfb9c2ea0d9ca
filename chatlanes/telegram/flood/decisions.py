"""What the gate says to a call, and what is then done. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class What(Enum):
    """Of the script `ask`."""

    GO = "go"
    SLOT = "slot"  # a slot is taken: go after the wait, when nothing is paused then
    PAUSE = "pause"  # the chat, or the method, is paused
    BOT = "bot"  # the whole bot is paused
    RATE = "rate"  # the chat has had its messages
    BUSY = "busy"  # the bot has had its messages, for longer than anybody waits in place


_WHATS = {what.value.encode(): what for what in What}


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """`at_us` is when the wait is over, by Redis' clock; `some_refused`: others were, and none was accepted since."""

    what: What
    wait_s: float
    at_us: int
    some_refused: bool

    @property
    def goes(self) -> bool:
        return self.what is What.GO

    @property
    def is_pause(self) -> bool:
        return self.what in (What.PAUSE, What.BOT)


def read(answer: list[Any]) -> GateAnswer:
    what, wait_us, at_us, refused = answer
    return GateAnswer(_WHATS[what], wait_us / 1_000_000, at_us, bool(refused))


class How(Enum):
    """How one waits."""

    HERE = 1
    PARKED = 2
    REFUSED = 3  # not at all: it would take hours


#: Whoever is told to wait longer is told no: methods such as setMyName are refused for a day, and the chat of the
#: update that called one would stand still for that day.
LONGEST_S = 3600.0


def how(answer: GateAnswer, *, patience_s: float, left_s: float, parks: bool = True) -> How:
    """`patience_s` is what is left of FLOOD_WAIT for this call, `left_s` the time until UPDATE_TIMEOUT.

    `parks`: whether what calls can be put off.
    """
    if answer.is_pause and answer.wait_s > LONGEST_S:
        return How.REFUSED
    if answer.what is not What.BUSY and answer.wait_s <= patience_s and answer.wait_s < left_s:
        return How.HERE
    return How.PARKED if parks else How.REFUSED
