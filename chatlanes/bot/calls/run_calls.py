"""The path of every Bot API call that a handler makes: journal, gate, HTTP, journal.

Guarantees that a call which an earlier run of this update made is not repeated but answered as it was then, and that
nothing is sent when another worker may run the update: LeaseLost is raised instead. A call that only reads, or shows
that the bot is typing, is not in the journal, but is fenced. Without a journal (an update that came through no lane)
every call is made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from chatlanes import lanes, traces
from chatlanes.bot.calls.journal import CallJournal, JournaledCall, Uncertain
from chatlanes.bot.calls.late_calls import LateCalls
from chatlanes.bot.calls.lifecycle import Lifecycle
from chatlanes.lanes.errors import RedisAway
from chatlanes.lanes.protocol.pipelined_pool import PipelinedCommand
from chatlanes.telegram import (
    BotApi,
    BotApiError,
    NetworkError,
    Prepared,
    TooManyRequests,
    downloads,
    errors,
    is_read_only,
    prepare,
    repeated,
)
from chatlanes.telegram.flood import GateAnswer, OpenGate, OpenPassage, ParkUpdate, Passage, RunGate
from chatlanes.traces import Ending


class Calls:
    """The Bot API as one run of a handler has it. Threads and greenlets of the handler may share it."""

    journal: CallJournal | None
    gate: RunGate | OpenGate

    def __init__(
        self,
        api: BotApi,
        journal: CallJournal | None = None,
        gate: RunGate | OpenGate | None = None,
        life: Lifecycle | None = None,
    ) -> None:
        self.api, self.journal, self.gate, self.life = api, journal, gate or OpenGate(), life or Lifecycle()

    def call(self, method: str, /, *, uncertain: Uncertain | None = None, **params: Any) -> Any:
        """The result of a method, made now or by an earlier run; None for a call that is skipped because nobody knows
        whether an earlier run has made it (`uncertain`; UNCERTAIN_CALL when not given).

        Raises BotApiError, LeaseLost, and ParkUpdate when it has to wait for longer than FLOOD_WAIT, or Redis is away.
        """
        call = prepare(method, params)
        with traces.here().calling(method, call.chat, self.api.url, ending_of) as span:
            if self.journal is None:
                return repeated(lambda: self.api.send(call), reads=is_read_only(method))
            try:
                passage = self.gate.passage(call, self.journal.ask)
                if is_read_only(method):
                    return self._read(call, passage)
                begun = self.journal.begin(method, fingerprint(call), uncertain=uncertain, along=passage.commands())
                span.set(call=begun.position, replayed=not begun.is_due)
                if begun.is_due:
                    return self._make(call, begun, passage)
            except RedisAway as outage:
                self.gate.cut_off(outage)
            passage.replayed()
            return _answer_of(begun)

    def download(self, file_path: str, to: Path | None = None) -> bytes:
        """As BotApi.download. Raises LeaseLost and ParkUpdate besides."""
        with traces.here().calling(downloads.METHOD, None, self.api.url, ending_of):
            try:
                self.ensure(downloads.METHOD)
            except RedisAway as outage:
                self.gate.cut_off(outage)
            return self.api.download(file_path, to)

    def beside(self, series: str, life: Lifecycle | None = None) -> Calls:
        """For a hook, whose calls are not to be taken for the handler's. One inside of the run shares its life."""
        return Calls(self.api, self.journal and self.journal.beside(series), self.gate.for_hook(), life)

    def reserved(self, method: str) -> Calls | LateCalls:
        """For a single call that is made later, on another thread: it has its place among the others from now on. One
        that only reads needs none.
        """
        if not self.life.is_open:
            return LateCalls(self.api, self.life, self.journal)
        if self.journal is None or is_read_only(method):
            return self
        return Calls(self.api, self.journal.reserved(), self.gate, self.life)

    def is_sure(self) -> bool:
        """Whether nobody else can run the update now. Asks nobody."""
        return self.journal is None or self.journal.is_sure()

    def ensure(self, method: str) -> None:
        """Ask Redis where that is not sure. Raises LeaseLost: somebody else may run the update."""
        if self.journal is not None:
            self.journal.ensure(method)

    def _make(self, call: Prepared, begun: JournaledCall, passage: Passage | OpenPassage) -> Any:
        while True:
            if held := self._held(begun, passage):
                self._begin_again(begun, passage, held)
                continue
            try:
                result = repeated(lambda: self._send(call, begun), reads=False)
            except TooManyRequests as error:
                self._begin_again(begun, passage, error)
            except BotApiError as error:
                _note(begun, error)
                raise
            else:
                # Dying before this line, the call is uncertain for the next run; after it, it is done.
                begun.done(result)
                passage.accepted()
                return result

    def _held(self, begun: JournaledCall, passage: Passage | OpenPassage) -> GateAnswer | None:
        try:
            return passage.held(begun.answers)
        except BaseException:
            begun.undone()
            raise

    def _begin_again(
        self, begun: JournaledCall, passage: Passage | OpenPassage, why: GateAnswer | TooManyRequests
    ) -> None:
        """After the wait that the gate, or Telegram, wants. Dying in it, the call was not made, for certain."""
        begun.undone()
        passage.wait(passage.refused(why) if isinstance(why, TooManyRequests) else why)
        begun.begin(passage.commands())

    def _send(self, call: Prepared, begun: JournaledCall) -> Any:
        """A process that was frozen since it began, or waited at the gate, may have lost its lease by now."""
        return self.api.send(call, self._update, f"{begun.position}{' again' * begun.is_again}", begun.ensure)

    def _read(self, call: Prepared, passage: Passage | OpenPassage) -> Any:
        while True:
            if held := passage.held(self._ask(passage.commands())):
                passage.wait(held)
                continue
            try:
                result = repeated(lambda: self._send_if_ours(call), reads=True)
            except TooManyRequests as error:
                passage.wait(passage.refused(error))
            else:
                passage.accepted()
                return result

    def _ask(self, questions: Sequence[PipelinedCommand]) -> list[Any]:
        return self.journal.ask(*questions) if self.journal and questions else []

    def _send_if_ours(self, call: Prepared) -> Any:
        return self.api.send(call, self._update, before_send=lambda: self.ensure(call.method))

    @property
    def _update(self) -> str | None:
        return None if self.journal is None else self.journal.id


class RunCalls(Calls):
    """Of a run that came through a lane. Many make no call at all: what it takes is made for the first one.

    Two threads may make it at the same time: both get what was kept first.
    """

    def __init__(
        self, api: BotApi, delivery: lanes.Delivery, uncertain: Uncertain, gate: Callable[[], RunGate | OpenGate]
    ) -> None:
        self.api, self._delivery, self._uncertain, self._make_gate = api, delivery, uncertain, gate
        self.life = Lifecycle()

    @cached_property
    def journal(self) -> CallJournal:  # type: ignore[override]
        made: CallJournal = vars(self).setdefault("journal", CallJournal(self._delivery.journal, self._uncertain))
        return made

    @cached_property
    def gate(self) -> RunGate | OpenGate:  # type: ignore[override]
        made: RunGate | OpenGate = vars(self).setdefault("gate", self._make_gate())
        return made


def calls_of(
    api: BotApi,
    delivery: lanes.Delivery | None,
    uncertain: Uncertain,
    gate: Callable[[], RunGate | OpenGate] = OpenGate,
) -> Calls:
    """Those of the run that has this delivery."""
    return Calls(api) if delivery is None else RunCalls(api, delivery, uncertain, gate)


def fingerprint(call: Prepared) -> str:
    """Of all that is sent, but for the names of files: a temporary file has another one each time."""
    data = call.request.data
    digest = hashlib.blake2b(digest_size=16)
    for name, value in sorted(data.items()) if isinstance(data, dict) else [("", data)]:
        _add(digest, name.encode(), value.encode() if isinstance(value, str) else value)
    for name, (_, content) in sorted(call.request.files.items()):
        _add(digest, name.encode(), content)
    return digest.hexdigest()


def ending_of(error: BaseException) -> Ending:
    """What the trace of a call records of the error that it raised."""
    if isinstance(error, ParkUpdate):
        return Ending({"parked": True}, None)
    if not isinstance(error, BotApiError):
        return Ending({}, error)
    wait_s = error.retry_after if isinstance(error, TooManyRequests) else None
    fields = {"http.response.status_code": error.code, "uncertain": error.uncertain, "retry_after_s": wait_s}
    return Ending(fields, error)


def _add(digest: Any, *parts: bytes) -> None:
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)


def _note(begun: JournaledCall, error: BotApiError) -> None:
    """What a call that failed leaves in the journal. One that may have taken effect is left as begun: uncertain."""
    if error.uncertain:
        return
    if isinstance(error, NetworkError):  # nothing was sent
        begun.undone()
    else:
        begun.refused({"kind": type(error).__name__, **vars(error)})


def _answer_of(begun: JournaledCall) -> Any:
    """What an earlier run was answered."""
    if begun.is_refused and begun.outcome:
        raise _refusal(**begun.outcome)
    return begun.outcome


def _refusal(kind: str, **fields: Any) -> BotApiError:
    found = getattr(errors, kind, BotApiError)
    error: BotApiError = found(**fields)
    return error
