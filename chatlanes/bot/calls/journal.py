"""The journal of the Bot API calls of one run: replays those of earlier runs, records its own.

Guarantees that a call with a recorded outcome is not made again, and that one which was begun and has no outcome is
repeated or skipped as asked. Independent of our client: any sender (a framework's session, too) begins a call here,
sends it if it `is_due`, and records its outcome, any JSON. Does not wait until the outcome is written.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from copy import copy
from typing import Any, Literal, get_args

import orjson

from chatlanes import lanes
from chatlanes.lanes.protocol.pipelined_pool import PipelinedCommand
from chatlanes.lanes.protocol.replies import Begun, Kind, Noted

logger = logging.getLogger(__name__)

#: What becomes of a call that an earlier run began and left without an outcome.
Uncertain = Literal["repeat", "skip"]
_POLICIES = get_args(Uncertain)

#: An answer of the Bot API has a few KB, the largest some hundred. What is longer is noted without it.
LONGEST_OUTCOME = 1 << 20


def _noted(outcome: Any) -> bytes:
    try:
        return orjson.dumps(outcome)
    except TypeError:  # half an emoji, or a number beyond 64 bits
        return json.dumps(outcome, separators=(",", ":")).encode()


class CallJournal:
    """Of one run. `series` keeps calls apart that are made besides the handler's own, such as a hook's."""

    def __init__(self, journal: lanes.Journal, uncertain: Uncertain = "repeat", series: str = "") -> None:
        self._journal = journal
        self._uncertain = uncertain
        self._series = series
        self._place: str | None = None
        self._differences: list[str] = []

    @property
    def id(self) -> str:
        """Of the update."""
        return self._journal.id

    def beside(self, series: str) -> CallJournal:
        """For calls besides these. Those of the same series in an earlier run are replayed."""
        return CallJournal(self._journal, self._uncertain, series)

    def reserved(self) -> CallJournal:
        """For a single call that begins later, on another thread: it has its place among the others from now on."""
        reserved = copy(self)
        reserved._place = self._journal.position(self._series)
        return reserved

    def begin(
        self,
        method: str,
        fingerprint: str,
        *,
        uncertain: Uncertain | None = None,
        along: Sequence[PipelinedCommand] = (),
    ) -> JournaledCall:
        """The next call. `fingerprint` says what is sent, without blanks; `along` is asked in the same round trip.

        Raises LeaseLost: send nothing; ValueError for an `uncertain` that is none, and RedisAway.
        """
        policy = uncertain or self._uncertain
        if policy not in _POLICIES:
            raise ValueError(f"uncertain={policy!r}: write 'repeat' or 'skip'")
        place = self._place or self._journal.position(self._series)
        call = JournaledCall(self._journal, method, place, f"{method}:{fingerprint}", policy)
        call.begin(along)
        if call.was and not self._differences:
            self._differences.append(place)
            logger.warning(
                "%s: call %s is %s now and was %s in an earlier run; from here on every call is made anew",
                self._journal.id,
                call.position,
                call.what,
                call.was,
            )
        return call

    def ask(self, *asked: PipelinedCommand) -> list[Any]:
        """Something else of Redis; it is waited for as begin does. Raises RedisAway."""
        return self._journal.ask(*asked)

    def is_sure(self) -> bool:
        """Whether nobody else can run the update now. Asks nobody."""
        return self._journal.is_sure()

    def ensure(self, method: str) -> None:
        """For what is not noted, because it only reads. Raises LeaseLost when somebody else may run the update."""
        self._journal.ensure(method)


class JournaledCall:
    """One call of one run.

    is_due: it is to be made now, and its outcome noted. Else `outcome` is that of an earlier run (None: skipped, or too
    long to be noted), and `is_refused` says that it was a refusal. is_again: it is due, but may have been made before,
    by a run that left no outcome. `answers` are those to what was asked along.
    """

    def __init__(self, journal: lanes.Journal, method: str, position: str, what: str, uncertain: Uncertain) -> None:
        self.method = method
        self.position = position
        self.what = what
        self.was = ""  # what it was in an earlier run, when that made another call here
        self.is_due = True
        self.is_again = False
        self.is_refused = False
        self.outcome: Any = None
        self.answers: list[Any] = []
        self._journal = journal
        self._uncertain = uncertain

    def begin(self, along: Sequence[PipelinedCommand] = ()) -> None:
        """Once before it is made; and again after it was `undone`, or when `ensure` would ask anyway."""
        begun, self.answers = self._journal.begin(self.position, self.what, along)
        self._take(begun)

    def ensure(self) -> None:
        """Right before it is sent: asks Redis again when that was too long ago. Raises LeaseLost: send nothing."""
        if not self._journal.is_sure():
            self._journal.begin(self.position, self.what)

    def done(self, outcome: Any) -> None:
        """It was made. `outcome` is what a later run gets."""
        self._end(Kind.DONE, outcome)

    def refused(self, outcome: Any) -> None:
        """It took no effect and would not now. A later run gets this if the handler goes on to another call."""
        self._end(Kind.REFUSED, outcome)

    def undone(self) -> None:
        """It was not made, for certain: as if it had not begun."""
        self._journal.end(self.position, self.what, Kind.UNDONE)

    def _end(self, kind: Kind, outcome: Any) -> None:
        noted = _noted(outcome)
        self._journal.end(self.position, self.what, kind, noted if len(noted) <= LONGEST_OUTCOME else b"")

    def _take(self, begun: Begun) -> None:
        if begun.noted is Noted.DIFFERENT:
            self.was = begun.outcome.decode()
        elif begun.noted is Noted.UNCERTAIN:
            self.is_due = self.is_again = self._uncertain == "repeat"
            told = "it is made again" if self.is_due else "it is skipped"
            self._warn("was begun by a run that left no outcome; %s (uncertain=%s)", told, self._uncertain)
        elif begun.noted in (Noted.DONE, Noted.REFUSED):
            self.is_due = False
            self.is_refused = begun.noted is Noted.REFUSED
            if begun.outcome:
                self.outcome = json.loads(begun.outcome)
            else:
                self._warn("was made by an earlier run; its result was too long to be noted, and is None now")

    def _warn(self, what: str, *arguments: object) -> None:
        logger.warning("%s: call %s, %s, " + what, self._journal.id, self.position, self.method, *arguments)
