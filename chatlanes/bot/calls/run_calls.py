"""The path of every Bot API call that a handler makes: journal, flood-control gate, HTTP, journal.

A call that an earlier run of this update made is not repeated; it returns the recorded outcome. Nothing is sent if
another worker may run the update: LeaseLost is raised instead. Read-only calls and chat actions are fenced but not
journaled. The hook of an evicted run has no journal, and makes every call.

Calls that begin while the run is open belong to it, and have ended when its update is settled. A later call, of a task
that outlives its handler, belongs to no update: it is sent directly, at most once, and is lost if its process ends. It
is refused with LeaseLost if the run has failed, because the next run starts the task again, or has lost the lease.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, Protocol

import celery_lanes as lanes
from celery_lanes.errors import LeaseLost, RedisAway
from celery_lanes.protocol import Command
from chatlanes import traces
from chatlanes.bot.calls.journal import CallJournal, JournaledCall, Uncertain
from chatlanes.bot.interrupts import deletions_of
from chatlanes.telegram import BotApiError, NetworkError, TooManyRequests, downloads, errors
from chatlanes.telegram.client import BotApi, Prepared, is_read_only, prepare, repeated
from chatlanes.telegram.errors import Unauthorized
from chatlanes.telegram.flood import GateAnswer, ParkUpdate, Passage, RunGate
from chatlanes.traces import Ending


class Api(Protocol):
    """Calls the Bot API: the client, or a wrapper around it."""

    def call(self, method: str, /, **params: Any) -> Any: ...


class Phase(Enum):
    OPEN = "the handler runs"
    ENDING = "the handler has returned; the run's calls are awaited"
    OVER = "the run has succeeded, with its lease"
    FAILED = "the run has failed, or has lost its lease"


class Lifecycle:
    """The phase of a run, set by coroutines.py, and its calls in flight. Used on one event loop only."""

    __slots__ = ("_calls", "_to_await", "phase")

    def __init__(self) -> None:
        self.phase = Phase.OPEN
        self._calls: set[asyncio.Future[Any]] = set()
        self._to_await: list[tuple[str, Callable[[], bool]]] = []

    @property
    def is_open(self) -> bool:
        return self.phase is Phase.OPEN

    def add(self, call: asyncio.Future[Any]) -> None:
        """Make the run wait for this call."""
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    @contextmanager
    def tracked(self) -> Iterator[None]:
        """Wraps a call, from its reservation to its outcome. The run waits for it if the run is open now."""
        if not self.is_open:
            yield
            return
        call = asyncio.get_running_loop().create_future()
        self._calls.add(call)
        try:
            yield
        finally:
            self._calls.discard(call)
            if not call.done():
                call.set_result(None)

    async def ended(self) -> None:
        """Wait for all calls. A cancellation of the wait does not cancel them."""
        while self._calls:
            await asyncio.wait(self._calls)

    def expect_await(self, what: str, is_awaited: Callable[[], bool]) -> None:
        """The handler has made something that begins only when it is awaited."""
        if self.is_open:
            self._to_await.append((what, is_awaited))

    def check_awaited(self) -> None:
        """Raises TypeError if something was left unawaited: a paid step would be missing without an error."""
        for what, is_awaited in self._to_await:
            if not is_awaited():
                raise TypeError(f"{what} was not awaited, so it did not happen: write `await {what}`")


def has_begun(coroutine: Coroutine[Any, Any, Any]) -> bool:
    """False: nobody has awaited it. It is closed, so that Python does not warn of it too."""
    if inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED:
        return True
    coroutine.close()
    return False


class Calls:
    """The Bot API calls of one run of a handler. The handler's threads and greenlets may share it."""

    journal: CallJournal | None
    gate: RunGate | None

    def __init__(
        self,
        api: BotApi,
        journal: CallJournal | None = None,
        gate: RunGate | None = None,
        life: Lifecycle | None = None,
    ) -> None:
        """Without a journal and a gate: those of the hook of an evicted run, which are not limited."""
        self.api, self.journal, self.gate, self.life = api, journal, gate, life or Lifecycle()

    def call(self, method: str, /, *, uncertain: Uncertain | None = None, **params: Any) -> Any:
        """The result of a method, called now or by an earlier run. None for a skipped call: an earlier run may have
        made it, and `uncertain` (default: UNCERTAIN_CALL) is "skip".

        Raises BotApiError, LeaseLost, and ParkUpdate if it must wait longer than FLOOD_WAIT or Redis is away.
        """
        return self.make(prepare(method, params), uncertain=uncertain)

    def make(self, call: Prepared, *, uncertain: Uncertain | None = None, known_as: str = "") -> Any:
        """Like `call`. `known_as` identifies the call in the journal, by default a hash of its content."""
        method = call.method
        with traces.here().calling(method, call.chat, self.api.url, ending_of) as span:
            if self.journal is None or self.gate is None:
                return repeated(lambda: self.api.send(call), reads=is_read_only(method))
            try:
                passage = self.gate.passage(call, self.journal.run.ask)
                if is_read_only(method):
                    return self._read(call, passage)
                known_as = known_as or self._name(call, self.journal)
                begun = self.journal.begin(method, known_as, uncertain=uncertain, along=passage.commands())
                span.set(call=begun.position, replayed=not begun.is_due)
                if begun.is_due:
                    return self._make(call, begun, passage)
            except RedisAway as outage:
                self.cut_off(outage)
            passage.replayed()
            return _answer_of(begun)

    def download(self, file_path: str, to: Path | None = None) -> bytes:
        """Like BotApi.download. Also raises LeaseLost and ParkUpdate."""
        with traces.here().calling(downloads.METHOD, None, self.api.url, ending_of):
            try:
                self.ensure(downloads.METHOD)
            except RedisAway as outage:
                self.cut_off(outage)
            return self.api.download(file_path, to)

    def in_series(self, series: str, life: Lifecycle | None = None) -> Calls:
        """The calls of a hook, in a journal series of their own. A hook that runs inside the run shares its `life`."""
        journal, gate = self.journal and self.journal.in_series(series), self.gate and self.gate.for_hook()
        return Calls(self.api, journal, gate, life)

    def at(self, place: str) -> Calls:
        """The calls at a place of the journal that the caller chooses."""
        return Calls(self.api, self.journal and self.journal.at(place), self.gate, self.life)

    def reserved(self, method: str) -> Calls | LateCalls:
        """For one call that is made later, on another thread. Its place in the journal is reserved now; a read-only
        call needs none.
        """
        if not self.life.is_open:
            return LateCalls(self.api, self.life, self.journal)
        if self.journal is None or is_read_only(method):
            return self
        return Calls(self.api, self.journal.reserved(), self.gate, self.life)

    def cut_off(self, outage: RedisAway) -> NoReturn:
        """Call when Redis does not answer. Raises ParkUpdate; in a hook, the outage."""
        if self.gate is None:
            raise outage
        self.gate.cut_off(outage)

    def is_sure(self) -> bool:
        """True if no other worker can run the update now. Does not ask Redis."""
        return self.journal is None or self.journal.run.is_sure()

    def ensure(self, method: str) -> None:
        """Check the lease, in Redis if necessary. Raises LeaseLost if another worker may run the update."""
        if self.journal is not None:
            self.journal.run.ensure(method)

    @staticmethod
    def _name(call: Prepared, journal: CallJournal) -> str:
        return fingerprint(call) + (deletions_of(call) if journal.run.is_interruptible else "")

    def _make(self, call: Prepared, begun: JournaledCall, passage: Passage) -> Any:
        while True:
            if held := self._held(begun, passage):
                self._begin_again(begun, passage, held)
                continue
            try:
                result = repeated(lambda: self.send(call, begun), reads=False)
            except TooManyRequests as error:
                self._begin_again(begun, passage, error)
            except BotApiError as error:
                _note(begun, error)
                raise
            else:
                # If the process dies before this line, the call is uncertain for the next run; after it, it is done.
                begun.done(result)
                passage.accepted()
                return result

    def _held(self, begun: JournaledCall, passage: Passage) -> GateAnswer | None:
        try:
            return passage.held(begun.answers)
        except BaseException:
            begun.undone()
            raise

    def _begin_again(self, begun: JournaledCall, passage: Passage, why: GateAnswer | TooManyRequests) -> None:
        """Wait as the gate or Telegram requires, then begin again. If the process dies during the wait, the journal
        shows that the call was not made.
        """
        begun.undone()
        passage.wait(passage.refused(why) if isinstance(why, TooManyRequests) else why)
        begun.begin(passage.commands())

    def send(self, call: Prepared, begun: JournaledCall | None = None) -> Any:
        """Send the call once. The lease is checked again, because the process may have been frozen, or have waited.
        Raises ParkUpdate if Telegram refuses the token.
        """
        update = None if self.journal is None else self.journal.run.id
        try:
            if begun is None:
                return self.api.send(call, update, before_send=lambda: self.ensure(call.method))
            return self.api.send(call, update, f"{begun.position}{' again' * begun.is_again}", begun.ensure)
        except Unauthorized as error:
            if begun is not None:
                begun.undone()
            if self.gate is None:
                raise
            self.gate.unauthorized(error)

    def _read(self, call: Prepared, passage: Passage) -> Any:
        while True:
            if held := passage.held(self.ask(*passage.commands())):
                passage.wait(held)
                continue
            try:
                result = repeated(lambda: self.send(call), reads=True)
            except TooManyRequests as error:
                passage.wait(passage.refused(error))
            else:
                passage.accepted()
                return result

    def ask(self, *commands: Command[Any]) -> list[Any]:
        """The replies of Redis to these commands. Raises RedisAway."""
        return self.journal.run.ask(*commands) if self.journal and commands else []


class LaneCalls(Calls):
    """The calls of a run with a lane. Journal and gate are created at the first call, because many runs make none.

    If two threads create one at the same time, both use the one that was stored first.
    """

    def __init__(
        self,
        api: BotApi,
        delivery: lanes.Delivery,
        uncertain: Uncertain,
        gate: Callable[[], RunGate],
    ) -> None:
        self.api, self._delivery, self._uncertain, self._make_gate = api, delivery, uncertain, gate
        self.life = Lifecycle()

    @cached_property
    def journal(self) -> CallJournal:  # type: ignore[override]
        made: CallJournal = vars(self).setdefault("journal", CallJournal(self._delivery.journal, self._uncertain))
        return made

    @cached_property
    def gate(self) -> RunGate:  # type: ignore[override]
        made: RunGate = vars(self).setdefault("gate", self._make_gate())
        return made


class LateCalls:
    """The calls of one run that begin after its handler has ended."""

    def __init__(self, api: BotApi, life: Lifecycle, journal: CallJournal | None) -> None:
        self._api, self._life, self._journal = api, life, journal

    def call(self, method: str, /, *, uncertain: object = None, **params: Any) -> Any:
        """Like BotApi.call. Also raises LeaseLost."""
        self._check(method)
        return self._api.call(method, **params)

    def download(self, file_path: str, to: Path | None = None) -> bytes:
        """Like BotApi.download. Also raises LeaseLost."""
        self._check("download")
        return self._api.download(file_path, to)

    def _check(self, method: str) -> None:
        if self._journal is None:
            return
        if self._life.phase is Phase.FAILED:
            raise LeaseLost(f"this run of {self._journal.run.id} has failed; {method} was not called")
        if self._life.phase is Phase.ENDING:  # the update is not settled yet, so the lease can be checked
            self._journal.run.ensure(method)


def fingerprint(call: Prepared) -> str:
    """A hash of everything that is sent, except file names, because temporary files get a new name in each run."""
    data = call.request.data
    digest = hashlib.blake2b(digest_size=16)
    for name, value in sorted(data.items()) if isinstance(data, dict) else [("", data)]:
        _add(digest, name.encode(), value.encode() if isinstance(value, str) else value)
    for name, (_, content) in sorted(call.request.files.items()):
        _add(digest, name.encode())
        if isinstance(content, Path):
            _add_file(digest, content)
        else:
            _add(digest, content)
    return digest.hexdigest()


def ending_of(error: BaseException) -> Ending:
    """The fields and the failure that the trace of a call records for its error."""
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


def _add_file(digest: Any, path: Path) -> None:
    """The same as `_add` of the content."""
    with path.open("rb") as file:
        digest.update(b"%d:" % os.fstat(file.fileno()).st_size)
        while piece := file.read(1 << 20):
            digest.update(piece)


def _note(begun: JournaledCall, error: BotApiError) -> None:
    """Record a failed call in the journal. A call that may have taken effect stays begun, that is, uncertain."""
    if error.uncertain:
        return
    if isinstance(error, NetworkError):  # nothing was sent
        begun.undone()
    else:
        begun.refused(errors.stored(error))


def _answer_of(begun: JournaledCall) -> Any:
    """Return or raise the outcome that an earlier run recorded."""
    if not (begun.is_refused and begun.outcome):
        return begun.outcome
    raise errors.restored(begun.outcome)
