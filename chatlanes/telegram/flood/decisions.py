"""The gate's verdict on a call, and how the call then waits. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Verdict(Enum):
    """The result of the script `ask`."""

    GO = "go"
    SLOT = "slot"  # a slot is reserved: send after the wait, unless something is paused by then
    PAUSE = "pause"  # the chat, or the method, is paused
    BOT = "bot"  # the whole bot is paused
    RATE = "rate"  # the chat has reached its rate limit
    BUSY = "busy"  # the bot has reached its rate limit, and the next free slot is later than the longest wait in place


_VERDICTS = {verdict.value.encode(): verdict for verdict in Verdict}


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """`at_us`: end of the wait, by Redis' clock. `some_refused`: calls were refused, and none was accepted since."""

    verdict: Verdict
    wait_s: float
    at_us: int
    some_refused: bool

    @property
    def goes(self) -> bool:
        return self.verdict is Verdict.GO

    @property
    def is_pause(self) -> bool:
        return self.verdict in (Verdict.PAUSE, Verdict.BOT)


def read(answer: list[Any]) -> GateAnswer:
    verdict, wait_us, at_us, refused = answer
    return GateAnswer(_VERDICTS[verdict], wait_us / 1_000_000, at_us, bool(refused))


class WaitMode(Enum):
    """How a held call waits."""

    IN_PLACE = 1
    PARKED = 2
    REFUSED = 3  # it does not wait: the caller gets TooManyRequests


#: A call that would have to wait longer is refused: methods such as setMyName are refused for a day, and the chat of
#: the update would be blocked for that day.
LONGEST_S = 3600.0


def wait_mode(answer: GateAnswer, *, longest_wait_s: float, left_s: float, parks: bool = True) -> WaitMode:
    """`longest_wait_s`: the rest of FLOOD_WAIT for this call. `left_s`: the time until UPDATE_TIMEOUT. `parks`: the run
    can be parked.
    """
    if answer.is_pause and answer.wait_s > LONGEST_S:
        return WaitMode.REFUSED
    if answer.verdict is not Verdict.BUSY and answer.wait_s <= longest_wait_s and answer.wait_s < left_s:
        return WaitMode.IN_PLACE
    return WaitMode.PARKED if parks else WaitMode.REFUSED
