"""The journal of the Bot API calls of one run: replays the calls of earlier runs and records new ones.

A call with a recorded outcome is not made again; a call that was begun and has no outcome is repeated or skipped, by
`uncertain`. Any sender can use it, a framework's session too: begin a call, send it if it `is_due`, and record its
outcome (any JSON). Recording does not wait until the outcome is written.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from contextvars import ContextVar
from copy import copy
from typing import Any, Literal, NamedTuple, get_args

import orjson
from redis.exceptions import RedisError

import celery_lanes as lanes
from celery_lanes.errors import RedisAway
from celery_lanes.protocol import Begun, Command, Kind, Noted, keys, plain

logger = logging.getLogger(__name__)

#: The policy for a call that an earlier run began and left without an outcome.
Uncertain = Literal["repeat", "skip"]
_POLICIES = get_args(Uncertain)

#: Responses of the Bot API have a few KB, at most some hundred. A longer outcome is not stored; only that there is one.
LONGEST_OUTCOME = 1 << 20


#: A place: its series, which may be empty, and its number in that.
_PLACE = re.compile(r"(.*?)(\d+)")

#: The name of the step (steps.py) whose function runs here; empty outside of steps.
IN_STEP: ContextVar[str] = ContextVar("step", default="")


class AskTimeout(Exception):  # noqa: N818  names a state, like asyncio's
    """Nobody has answered a question in time."""


class StepError(Exception):
    """`ctx.step` was used wrongly, or its result cannot be stored. The message says what to do."""


def _noted(outcome: Any) -> bytes:
    try:
        return orjson.dumps(outcome)
    except TypeError:  # half a surrogate pair, or a number beyond 64 bits
        return json.dumps(outcome, separators=(",", ":")).encode()


class CallJournal:
    """The calls of one run. `run` is the journal of all its series: `series` separates calls that are not the handler's
    own, such as a hook's.
    """

    def __init__(self, journal: lanes.Journal, uncertain: Uncertain = "repeat", series: str = "") -> None:
        self.run = journal
        self._uncertain = uncertain
        self._series = series
        self._place: str | None = None
        self._may_differ = False
        self._differences: list[str] = []
        self._replayed: dict[str, RecordedCall] = {}
        #: How many places the handler has reached: its calls, steps, streams and questions so far.
        self.progress = 0
        #: The places of calls that were skipped, because an earlier run had begun them and left no outcome.
        self.skipped: list[str] = []

    def in_series(self, series: str) -> CallJournal:
        """The journal of another series of calls. Calls of the same series in an earlier run are replayed."""
        other = CallJournal(self.run, self._uncertain, series)
        other._replayed = self._replayed
        return other

    @property
    def is_of_hook(self) -> bool:
        """True for the calls of a hook, which are in a series of their own."""
        return bool(self._series)

    def replay(self, calls: dict[str, RecordedCall]) -> None:
        """Answer calls from these first, by their place: a handler that has asked a question made them."""
        self._replayed.update(calls)

    def outcomes(self) -> dict[str, RecordedCall]:
        """All calls so far, for `replay` in the run of another message. Raises RedisAway."""
        self.run.confirm()
        return self.known("")

    def known(self, series: str) -> dict[str, RecordedCall]:
        """The calls that this run replays, at places that begin with `series`: those of earlier runs, and of the
        handler that has asked a question. Raises RedisAway.
        """
        recorded = self.recorded(series)
        for place in recorded:  # it is newer than what the handler did before its question
            self._replayed.pop(place, None)
        replayed = {place: call for place, call in [*self._replayed.items()] if place.startswith(series)}
        return {**replayed, **recorded}

    def reached(self) -> int:
        """How many places the handler has reached, in this run or one before it. Raises RedisAway."""
        return len({place.partition(":")[0] for place in self.known("") if is_of_handler(place)})

    def next_series(self, name: str) -> str:
        """A series for the calls of the next object with this name, which is found again by its number."""
        return f"{self._next(name)}:"

    def place_of_step(self, name: str) -> str:
        """The place of the next step with this name. Steps with other names, and calls, do not move it."""
        return self._next(f"step/{name}/")

    def at(self, place: str) -> CallJournal:
        """The journal for calls at a place that the caller chooses. Another call there in a later run replaces it."""
        chosen = copy(self)
        chosen._place, chosen._may_differ = place, True
        return chosen

    def recorded(self, series: str, message_id: str = "") -> dict[str, RecordedCall]:
        """The calls that earlier runs, of this message or another one, recorded at places that begin with `series`.
        Raises RedisAway.
        """
        of = message_id or self.run.id
        [found] = self.run.ask(plain("HGETALL", keys.journal(of)))
        if isinstance(found, RedisError):
            raise RedisAway(f"Redis does not return the journal of {of}: {found}") from found
        places = zip(*[iter(found)] * 2, strict=True) if isinstance(found, list) else found.items()
        noted = {place.decode(): value.split(b" ", 3) for place, value in places if place.startswith(series.encode())}
        return {place: RecordedCall.of(*parts) for place, parts in noted.items() if len(parts) == 4}

    def record(self, place: str, what: str, outcome: Any) -> None:
        """Record a result for later runs, without waiting for Redis; replaces the previous one at this place."""
        self._replayed.pop(place, None)
        JournaledCall(self.run, what.partition(":")[0], place, what, self._uncertain).done(outcome)

    def reserved(self) -> CallJournal:
        """The journal for one call that begins later, on another thread. The call's place is reserved now."""
        reserved = copy(self)
        reserved._place = self._next()
        return reserved

    def begin(
        self,
        method: str,
        fingerprint: str,
        *,
        uncertain: Uncertain | None = None,
        along: Sequence[Command[Any]] = (),
    ) -> JournaledCall:
        """Begin the next call. `fingerprint` identifies its content, without spaces; the commands `along` are sent in
        the same round trip.

        Raises LeaseLost (nothing may be sent), RedisAway, and ValueError for an invalid `uncertain`.
        """
        policy = uncertain or self._uncertain
        if policy not in _POLICIES:
            raise ValueError(f"uncertain={policy!r}: use 'repeat' or 'skip'")
        place = self._place or self._next()
        call = JournaledCall(self.run, method, place, f"{method}:{fingerprint}", policy)
        found = self._replayed.get(place)
        if found is not None and _is_same(found.what, call.what):
            call.replay(found)
        elif found is not None:
            call.was = found.what
            self._forget_the_rest(place)
        if call.is_due:
            call.begin(along)
        if call.is_skipped:
            self.skipped.append(place)
        if call.was and not self._differences and not self._may_differ:
            self._differences.append(place)
            logger.warning(
                "%s: call %s is %s, but was %s in an earlier run; this call and all later ones are not replayed",
                self.run.id,
                call.position,
                call.what,
                call.was,
            )
        return call

    def _forget_the_rest(self, place: str) -> None:
        """Replay nothing more of its series from this place on, as begin.lua does for earlier runs of this message."""
        matched = {each: _PLACE.fullmatch(each) for each in (place, *self._replayed)}
        numbers = {each: (match[1], int(match[2])) for each, match in matched.items() if match}
        series, number = numbers[place]
        for each, (its_series, its_number) in numbers.items():
            if its_series == series and its_number >= number:
                self._replayed.pop(each, None)

    def _next(self, series: str = "") -> str:
        """The next place. Raises StepError in the function of a step: a later run, which does not call it, would find
        other calls at the places that it took.
        """
        if step := IN_STEP.get():
            raise StepError(
                f"the function of step {step} called the Bot API or another step: call them before or after the step"
            )
        self.progress += 1
        return self.run.position(self._series + series)


def _is_same(what: str, other: str) -> bool:
    """True for the same method and content. A run that may be interrupted also notes what a call deletes; the run that
    asked a question and that of its answer may differ in this.
    """
    return what.split(":")[:2] == other.split(":")[:2]


def is_of_handler(place: str) -> bool:
    """False for the calls of a hook, of an interrupted run, and of an answer to a question."""
    return " " not in place and ("/" not in place or place.startswith("step/"))


class RecordedCall(NamedTuple):
    """A call in the journal. `outcome`: its result or refusal; None: none is known."""

    state: str
    what: str
    outcome: Any
    has_outcome: bool = True

    @classmethod
    def of(cls, state: bytes, _fence: bytes, what: bytes, outcome: bytes) -> RecordedCall:
        return cls(state.decode(), what.decode(), json.loads(outcome) if outcome else None, bool(outcome))

    @property
    def is_done(self) -> bool:
        return self.state == Kind.DONE.value


class JournaledCall:
    """One call of one run.

    is_due: it must be made now, and its outcome recorded. Otherwise `outcome` is that of an earlier run (None: skipped,
    or not stored: `has_result` is False), and `is_refused` says whether it was a refusal. is_again: it is due, but may
    have been made before, by a run that left no outcome. `answers`: the replies to the commands sent along.
    """

    def __init__(self, journal: lanes.Journal, method: str, position: str, what: str, uncertain: Uncertain) -> None:
        self.method = method
        self.position = position
        self.what = what
        self.was = ""  # the call that an earlier run made at this place, if it is a different one
        self.is_due = True
        self.is_again = False
        self.is_skipped = False
        self.is_refused = False
        self.has_result = False
        self.outcome: Any = None
        self.answers: list[Any] = []
        self._journal = journal
        self._uncertain = uncertain

    def begin(self, along: Sequence[Command[Any]] = ()) -> None:
        """Call before it is made, and again after `undone`."""
        begun, self.answers = self._journal.begin(self.position, self.what, along)
        self._take(begun)

    def replay(self, found: RecordedCall) -> None:
        """Take the outcome that the run of another message has recorded."""
        known = {Kind.DONE.value: Noted.DONE, Kind.REFUSED.value: Noted.REFUSED}
        outcome = json.dumps(found.outcome).encode() if found.has_outcome else b""
        self._take(Begun(known.get(found.state, Noted.UNCERTAIN), outcome))

    def ensure(self) -> None:
        """Call immediately before it is sent: checks the lease, in Redis if the last check is too old. Raises LeaseLost
        (nothing may be sent).
        """
        if not self._journal.is_sure():
            self._journal.begin(self.position, self.what)

    def done(self, outcome: Any) -> None:
        """Record that it was made. A later run gets this outcome."""
        self._end(Kind.DONE, outcome)

    def done_with(self, outcome: bytes) -> None:
        """Like `done`, with an outcome that is JSON already; empty: a later run finds that it was made, without one."""
        self._journal.end(self.position, self.what, Kind.DONE, outcome)

    def refused(self, outcome: Any) -> None:
        """Record that Telegram refused it. A later run gets this refusal if this run makes another call after it."""
        self._end(Kind.REFUSED, outcome)

    def undone(self) -> None:
        """Record that it was certainly not made, as if it had not begun."""
        self._journal.end(self.position, self.what, Kind.UNDONE)

    def _end(self, kind: Kind, outcome: Any) -> None:
        noted = _noted(outcome)
        self._journal.end(self.position, self.what, kind, noted if len(noted) <= LONGEST_OUTCOME else b"")

    def _take(self, begun: Begun) -> None:
        if begun.noted is Noted.DIFFERENT:
            self.was = begun.outcome.decode()
        elif begun.noted is Noted.UNCERTAIN:
            self.is_due = self.is_again = self._uncertain == "repeat"
            self.is_skipped = not self.is_due
            action = "it is made again" if self.is_due else "it is skipped"
            self._warn("was begun by a run that left no outcome; %s (uncertain=%s)", action, self._uncertain)
        elif begun.noted in (Noted.DONE, Noted.REFUSED):
            self.is_due = False
            self.is_refused = begun.noted is Noted.REFUSED
            self.has_result = bool(begun.outcome)
            if self.has_result:
                self.outcome = json.loads(begun.outcome)
            else:
                self._warn("was made by an earlier run; its result was too long to store, so it is None now")

    def _warn(self, what: str, *arguments: object) -> None:
        logger.warning("%s: call %s, %s, " + what, self._journal.id, self.position, self.method, *arguments)
