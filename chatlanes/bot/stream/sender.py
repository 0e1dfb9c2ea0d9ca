"""The requests of one stream: when each is due, and how it is sent. Times are those of time.monotonic().

Guarantees that the intermediate edits of all streams in a chat, on all workers, make at most one request per interval,
and that nothing is sent unless the lease is held right before it leaves. An attempt never waits for flood control: one
that is held is not sent, and is made again later with newer text; a call waits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from celery_lanes.errors import RedisAway
from celery_lanes.protocol import plain
from chatlanes import traces
from chatlanes.bot.calls.journal import CallJournal, JournaledCall, RecordedCall
from chatlanes.bot.calls.run_calls import Api, Calls, ending_of
from chatlanes.telegram.client import Prepared, prepare
from chatlanes.telegram.errors import BotApiError, TooManyRequests
from chatlanes.telegram.flood import RunGate
from chatlanes.telegram.flood.gate import is_group
from chatlanes.telegram.flood.keys import EDITED, LONGEST_SCOPE

#: The first text is shown after this time even if it is shorter than STREAM_FIRST.
FIRST_WITHIN_S = 0.5
#: The time between two edits in a private chat, and in a group or channel (Telegram allows 20 messages a minute there).
PRIVATE_S = 1.0
GROUP_S = 3.0
#: After the interval of a chat has ended, the streams that waited for it ask before the one that had it.
TURN_S = 0.001
#: Telegram shows the typing action for 5 s.
TYPING_S = 4.5
#: Telegram shows a draft for 30 s.
DRAFT_S = 25.0
#: The waits after a network or server error.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0


class StreamPace:
    """The times of one stream."""

    def __init__(self, chat: int | str | None, first_chars: int) -> None:
        self.interval_s = GROUP_S if is_group(chat) else PRIVATE_S
        self.first_chars = first_chars
        self.is_shown = False
        self._next_s = 0.0  # no text before
        self._typing_s = 0.0
        self._pause_s = FIRST_PAUSE_S

    def text_due_s(self, length: int, began_s: float | None) -> float | None:
        """When the unsent text is due; None: not before more text is written. `began_s`: of the first text."""
        if began_s is None:
            return None
        if self.is_shown or length >= self.first_chars:
            return self._next_s
        return max(self._next_s, began_s + FIRST_WITHIN_S)

    def typing_due_s(self) -> float | None:
        return None if self.is_shown else self._typing_s

    def sent(self, now_s: float) -> None:
        self.is_shown = True
        self._next_s = now_s + self.interval_s
        self._pause_s = FIRST_PAUSE_S

    def typed(self, now_s: float) -> None:
        self._typing_s = now_s + TYPING_S

    def held(self, now_s: float, wait_s: float, *, is_in_turn: bool) -> None:
        """Flood control holds the request: it asks again after the wait, but not more often than it may send. In turn
        with other streams it asks as soon as the interval is free; otherwise the same stream would always get it.
        """
        self._next_s = now_s + (wait_s + TURN_S if is_in_turn else max(wait_s, self.interval_s))

    def failed(self, now_s: float) -> None:
        """A network or server error."""
        self._next_s = now_s + max(self._pause_s, self.interval_s)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    def wait_s(self, now_s: float) -> float:
        """Until the final text may be sent. Flood control decides about the rest."""
        return max(0.0, min(self._next_s - now_s, self.interval_s)) if self.is_shown else 0.0


class Held(NamedTuple):
    """The request was not sent. It may be after `wait_s`. `is_in_turn`: another stream edits in the same chat."""

    wait_s: float
    is_in_turn: bool = False


class SentRequest(NamedTuple):
    """is_new: False if an earlier run sent it."""

    result: Any
    is_new: bool = True


class PlainSender:
    """Makes requests with any Api, without journal and flood control, as in a test or the hook of an evicted run."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def attempt(self, method: str, params: dict[str, Any], place: str = "", known_as: str = "") -> SentRequest | Held:
        try:
            return SentRequest(self._api.call(method, **params))
        except TooManyRequests as error:
            return Held(error.retry_after)

    def call(self, method: str, params: dict[str, Any], place: str, known_as: str = "") -> Any:
        return self._api.call(method, **params)

    def recorded(self) -> dict[str, RecordedCall]:
        return {}

    def record(self, place: str, what: str, outcome: Any) -> None: ...


class Sender:
    """Makes requests as calls of a run. Places in its journal begin with `series`."""

    def __init__(self, calls: Calls, journal: CallJournal, gate: RunGate, series: str, interval_s: float) -> None:
        self._calls, self._journal, self._series = calls, journal, series
        # It reserves no slot of RATE_PER_BOT for a later time: by then there may be newer text.
        self._gate = gate.without_waits()
        self._interval_ms = round(interval_s * 1000)

    def attempt(self, method: str, params: dict[str, Any], place: str = "", known_as: str = "") -> SentRequest | Held:
        """Send the request now, or not at all. With a place it is journaled; without one it is an edit of which only
        the newest counts. Raises BotApiError, LeaseLost, and ParkUpdate.
        """
        call, begin = prepare(method, params), None
        if place:
            begin = partial(self._journal.at(self._series + place).begin, method, known_as, uncertain="repeat")
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
        """The records of earlier runs, and of the run that asked a question, by place. Raises ParkUpdate."""
        try:
            found = self._journal.known(self._series)
        except RedisAway as outage:
            self._calls.cut_off(outage)
        return {place.removeprefix(self._series): each for place, each in found.items()}

    def record(self, place: str, what: str, outcome: Any) -> None:
        """Record a result for later runs, without waiting for Redis."""
        self._journal.record(self._series + place, what, outcome)

    def _make(self, call: Prepared, begin: Callable[[], JournaledCall] | None) -> SentRequest | Held:
        passage = self._gate.passage(call, self._calls.ask)
        asked, interval = passage.commands(), None if begin else self._interval_key(call)
        # An edit takes the interval of its chat, or learns how long another stream has it.
        shared = interval and [plain("PTTL", interval), plain("SET", interval, 1, "NX", "PX", self._interval_ms)]
        answers = self._calls.ask(*asked, *(shared or ()))
        if held := passage.held(answers[: len(asked)]):
            return Held(held.wait_s)
        if interval and answers[-1] is None:  # another stream has just made an edit in this chat
            return Held(self._interval_left_s(interval, answers[-2]), is_in_turn=True)
        begun = begin() if begin else None
        if begun is not None and not begun.is_due:
            return SentRequest(begun.outcome, is_new=False)
        try:
            result = self._calls.send(call, begun)
        except BotApiError as error:
            if begun is not None and not error.uncertain:  # the call was certainly not made
                begun.undone()
            if not isinstance(error, TooManyRequests):
                raise
            return Held(passage.refused(error).wait_s)
        if begun:
            begun.done(result)
        passage.accepted()
        return SentRequest(result)

    def _interval_key(self, call: Prepared) -> str | None:
        if not call.messages or call.chat is None:
            return None
        return f"{EDITED}{self._gate.gate.bot_id}:{str(call.chat)[:LONGEST_SCOPE].lower()}"

    def _interval_left_s(self, key: str, left_ms: int) -> float:
        if left_ms <= self._interval_ms:
            return max(0, left_ms) / 1000
        # It began before the clock of Redis was set back.
        self._calls.ask(plain("DEL", key))
        return self._interval_ms / 1000
