"""The gate that every call of a bot passes before it is sent: its settings, and its form for one run of the handler.

Asks Redis nothing by itself: its questions travel with whatever else is asked before a call. A run that came through no
lane has the open gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from chatlanes.lanes.errors import RedisAway
from chatlanes.lanes.protocol.pipelined_pool import PipelinedCommand
from chatlanes.telegram.client import Prepared
from chatlanes.telegram.errors import TooManyRequests
from chatlanes.telegram.flood.decisions import Answer
from chatlanes.telegram.flood.passage import Ask, Passage
from chatlanes.telegram.flood.rates import Rates
from chatlanes.telegram.flood.waiting import Waiting


@dataclass(frozen=True)
class Gate:
    """Of one bot. `patience_s`: the longest wait in place (FLOOD_WAIT)."""

    bot_id: str
    rates: Rates = field(default_factory=Rates)
    patience_s: float = 5.0


class OpenGate:
    """Lets every call pass: for runs that came through no lane, and have nothing to ask."""

    def passage(self, call: Prepared, ask: Ask) -> OpenPassage:
        return OpenPassage()

    def cut_off(self, outage: RedisAway) -> NoReturn:
        raise outage

    def beside(self) -> OpenGate:
        return self


class OpenPassage:
    """See Passage."""

    def questions(self) -> Sequence[PipelinedCommand]:
        return ()

    def held(self, answers: Sequence[Any]) -> Answer | None:
        return None

    def replayed(self) -> None: ...

    def wait(self, answer: Answer) -> None: ...

    def refused(self, error: TooManyRequests) -> Answer:
        raise error

    def accepted(self) -> None: ...


class RunGate:
    """A bot's gate for one run of its handler. Threads and greenlets of the handler may share it."""

    def __init__(self, gate: Gate, waiting: Waiting) -> None:
        self.gate = gate
        self.waiting = waiting
        #: The last call was answered by the journal: the next one may be too, and must not cost a slot.
        self.replays = False

    def passage(self, call: Prepared, ask: Ask) -> Passage:
        """`ask` gives Redis' answers to what the passage asks. Raises ParkUpdate when the run is to end."""
        self.waiting.check()
        return Passage(self, call, ask)

    def cut_off(self, outage: RedisAway) -> NoReturn:
        """A call could not be made because Redis is away. Raises ParkUpdate, or the outage for a hook."""
        self.waiting.cut_off(outage)

    def beside(self) -> RunGate:
        """For a hook, which is not run again: it waits in place, or is refused as Telegram would."""
        return RunGate(self.gate, self.waiting.beside())
