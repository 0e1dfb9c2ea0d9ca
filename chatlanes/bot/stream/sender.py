"""The requests of one stream, in two ways: attempts, which never wait for flood control, and calls, which do.

An attempt that flood control holds is not sent, and is made again later with newer text. Like every call, nothing is
sent unless the lease is held right before it leaves, and all workers observe a 429.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

from chatlanes import traces
from chatlanes.bot.api import Api
from chatlanes.bot.calls.journal import JournaledCall, RecordedCall
from chatlanes.bot.calls.run_calls import Calls, ending_of
from chatlanes.bot.stream.pacing import ended_interval, shared_interval
from chatlanes.lanes.errors import RedisAway
from chatlanes.lanes.protocol.pipelined_pool import PipelinedCommand
from chatlanes.telegram.client import Prepared, prepare
from chatlanes.telegram.errors import BotApiError, TooManyRequests
from chatlanes.telegram.flood import OpenGate, OpenPassage, Passage, RunGate


class Held(NamedTuple):
    """The request was not sent. It may be after `wait_s`. `is_in_turn`: another stream edits in the same chat."""

    wait_s: float
    is_in_turn: bool = False


class Sent(NamedTuple):
    """is_new: False if an earlier run sent it."""

    result: Any
    is_new: bool = True


class PlainSender:
    """Makes requests with any Api, without journal and flood control."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def attempt(self, method: str, params: dict[str, Any], place: str = "", known_as: str = "") -> Sent | Held:
        try:
            return Sent(self._api.call(method, **params))
        except TooManyRequests as error:
            return Held(error.retry_after)

    def call(self, method: str, params: dict[str, Any], place: str, known_as: str = "") -> Any:
        return self._api.call(method, **params)

    def recorded(self) -> dict[str, RecordedCall]:
        return {}

    def record(self, place: str, what: str, outcome: Any) -> None: ...


class Sender:
    """Makes requests as calls of a run. Places in its journal begin with `series`."""

    def __init__(self, calls: Calls, series: str, interval_s: float) -> None:
        self._calls = calls
        self._series = series
        self._interval_s = interval_s

    @cached_property
    def _gate(self) -> RunGate | OpenGate:
        """It reserves no slot of RATE_PER_BOT for a later time: by then there may be newer text."""
        gate = self._calls.gate
        return RunGate(replace(gate.gate, longest_wait_s=0.0), gate.waiting) if isinstance(gate, RunGate) else gate

    def attempt(self, method: str, params: dict[str, Any], place: str = "", known_as: str = "") -> Sent | Held:
        """Send the request now, or not at all. With a place it is journaled; without one it is an edit of which only
        the newest counts. Raises BotApiError, LeaseLost, and ParkUpdate.
        """
        call, journal = prepare(method, params), self._calls.journal
        begin = None
        if place and journal is not None:
            begin = partial(journal.at(self._series + place).begin, method, known_as, uncertain="repeat")
        with traces.here().calling(method, call.chat, self._calls.api.url, ending_of):
            try:
                return self._make(call, begin)
            except RedisAway as outage:
                self._gate.cut_off(outage)

    def call(self, method: str, params: dict[str, Any], place: str, known_as: str = "") -> Any:
        """The result of a journaled call. Waits for flood control. Raises BotApiError, LeaseLost, and ParkUpdate."""
        calls = self._calls.at(self._series + place)
        return calls.make(prepare(method, params), uncertain="repeat", known_as=known_as)

    def recorded(self) -> dict[str, RecordedCall]:
        """The records of earlier runs, by place. Raises ParkUpdate."""
        if self._calls.journal is None:
            return {}
        try:
            found = self._calls.journal.recorded(self._series)
        except RedisAway as outage:
            self._calls.gate.cut_off(outage)
        return {place.removeprefix(self._series): each for place, each in found.items()}

    def record(self, place: str, what: str, outcome: Any) -> None:
        """Record a result for later runs, without waiting for Redis."""
        if self._calls.journal is not None:
            self._calls.journal.record(self._series + place, what, outcome)

    def _make(self, call: Prepared, begin: Callable[[], JournaledCall] | None) -> Sent | Held:
        passage = self._gate.passage(call, self._ask)
        asked = passage.commands()
        answers = self._ask(*asked, *(() if begin else self._interval(call)))
        if held := passage.held(answers[: len(asked)]):
            return Held(held.wait_s)
        if answers[len(asked) :] and answers[-1] is None:  # another stream has just made an edit in this chat
            return Held(self._interval_left_s(call, answers[-2]), is_in_turn=True)
        begun = begin() if begin else None
        if begun is not None and not begun.is_due:
            return Sent(begun.outcome, is_new=False)
        try:
            result = self._send(call, begun)
        except TooManyRequests as error:
            _note(begun, error)
            return Held(_recorded_wait_s(passage, error))
        except BotApiError as error:
            _note(begun, error)
            raise
        if begun:
            begun.done(result)
        passage.accepted()
        return Sent(result)

    def _ask(self, *asked: PipelinedCommand) -> list[Any]:
        journal = self._calls.journal
        return journal.ask(*asked) if journal and asked else []

    def _interval(self, call: Prepared) -> list[PipelinedCommand]:
        if not isinstance(self._gate, RunGate) or not call.messages or call.chat is None:
            return []
        return shared_interval(self._gate.gate.bot_id, call.chat, self._interval_s)

    def _interval_left_s(self, call: Prepared, left_ms: int) -> float:
        if left_ms <= self._interval_s * 1000 or not isinstance(self._gate, RunGate) or call.chat is None:
            return max(0, left_ms) / 1000
        self._ask(ended_interval(self._gate.gate.bot_id, call.chat))  # it began before the clock of Redis was set back
        return self._interval_s

    def _send(self, call: Prepared, begun: JournaledCall | None) -> Any:
        calls = self._calls
        update = None if calls.journal is None else calls.journal.id
        if begun is None:
            return calls.api.send(call, update, before_send=lambda: calls.ensure(call.method))
        return calls.api.send(call, update, f"{begun.position}{' again' * begun.is_again}", begun.ensure)


def _note(begun: JournaledCall | None, error: BotApiError) -> None:
    """Record a call that was certainly not made."""
    if begun is not None and not error.uncertain:
        begun.undone()


def _recorded_wait_s(passage: Passage | OpenPassage, error: TooManyRequests) -> float:
    return error.retry_after if isinstance(passage, OpenPassage) else passage.refused(error).wait_s
