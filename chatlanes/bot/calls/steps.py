"""ctx.step: the outcome of a paid call is recorded in the journal, so that a rerun gets it and does not pay again.

Guarantees that a function whose outcome is recorded is not called again for the same update, and is called only while
no other worker can run the update. If the process dies after the function was called and before its outcome is
recorded, the step is uncertain, and the next run calls it again or skips it. Also uncertain is a function that was
interrupted, by a time limit or a newer update. A function that raises is not done: the next run calls it again.
"""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from celery.exceptions import SoftTimeLimitExceeded

from celery_lanes.errors import LanesError, LeaseLost, RedisAway
from chatlanes import traces
from chatlanes.bot.calls.journal import IN_STEP, CallJournal, JournaledCall, StepError, Uncertain
from chatlanes.bot.calls.run_calls import Api, Calls, Lifecycle, ending_of, has_begun
from chatlanes.bot.event_loop import blocking_executor, finished, is_async, is_in_coroutine
from chatlanes.bot.session import SessionError, check_keys, encode
from chatlanes.bot.stored import Stored

#: A part of a position in the journal: no blank, colon or slash, which separate its fields.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class StepContext(Protocol):
    """The parts of a context that a step uses."""

    update: dict[str, Any]
    api: Api
    stored: Stored | None
    fence: int | None


def step(
    ctx: StepContext, name: str, function: Callable[..., Any], args: Any, kwargs: Any, uncertain: Uncertain | None
) -> Any:
    """The function's result, or in a coroutine an awaitable of it. The arguments are those of Context.step."""
    if not isinstance(name, str) or not callable(function):
        raise StepError(
            f"ctx.step({name!r:.50}, {function!r:.50}): use a name and a function, ctx.step('charge', charge, order)"
        )
    if not _NAME.fullmatch(name):
        raise StepError(f"{name[:100]!r} is not a name of a step: use 1 to 64 letters, digits, `_`, `-` and `.`")
    journal = ctx.api.journal if isinstance(ctx.api, Calls) else None
    place = _place(ctx, name, journal)
    known = {"key": f"{_id_of(ctx)}/{place.replace('step/', '', 1)}", "fence": ctx.fence}
    call = partial(function, *args, **kwargs, **_wanted(function, args, kwargs, known))
    return Step(name, call, ctx.api, journal and journal.at(place), uncertain).result()


class Step:
    """One step, at a place of its own in the journal: its name and number. A test, and the hook of an evicted run, have
    no journal: its function is called each time.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[], Any],
        api: Api,
        journal: CallJournal | None,
        uncertain: Uncertain | None,
    ) -> None:
        self.name, self.function = name, function
        self._api, self._journal, self._uncertain = api, journal, uncertain
        self._life = api.life if isinstance(api, Calls) else Lifecycle()
        self._begun: JournaledCall | None = None
        self._span: traces.NoSpan = traces.NO_SPAN

    def result(self) -> Any:
        """The function's result, or in a coroutine an awaitable of it."""
        if is_in_coroutine():
            coroutine = self._soon()
            if isinstance(self._api, Calls):
                self._life.expect_await(f"ctx.step({self.name!r}, …)", partial(has_begun, coroutine))
            return coroutine
        if is_async(self.function):
            raise StepError(
                f"the function of step {self.name} is a coroutine function: await ctx.step in an async def handler"
            )
        with self._traced():
            return self._called()

    async def _soon(self) -> Any:
        with self._traced(), self._life.tracked():
            if not is_async(self.function):
                return await finished(blocking_executor().call(self._called))
            return await self._awaited()

    @contextmanager
    def _traced(self) -> Iterator[None]:
        with traces.here().stepping(self.name, ending_of) as self._span:
            yield

    def _called(self) -> Any:
        if not self._begin():
            return self._known()
        try:
            with self._inside():
                result = self.function()
        except Exception as error:
            if self._begun is not None and _is_undone(error):
                self._begun.undone()
            raise
        return self._done(result)

    async def _awaited(self) -> Any:
        is_called = False
        try:
            if not await finished(blocking_executor().call(self._begin)):
                return self._known()
            is_called = True
            with self._inside():
                result = await self.function()
        except BaseException as error:
            # If it was cancelled during the begin, the function was certainly not called.
            if self._begun is not None and (_is_undone(error) if is_called else self._begun.is_due):
                await finished(blocking_executor().call(self._begun.undone))
            raise
        return await finished(blocking_executor().call(partial(self._done, result)))

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """The function may make no call that has a place in the journal: a later run does not call it."""
        token = IN_STEP.set(self.name)
        try:
            yield
        finally:
            IN_STEP.reset(token)

    def _begin(self) -> bool:
        """True if the function is to be called. Raises LeaseLost, and ParkUpdate if Redis is away; then it is not."""
        if self._journal is None:
            return True
        if not self._life.is_open:
            raise LeaseLost(f"the handler has ended; step {self.name} was not called: await ctx.step in the handler")
        try:
            self._begun = begun = self._journal.begin("step", self.name, uncertain=self._uncertain)
            self._span.set(replayed=not begun.is_due)
            if begun.is_due:
                begun.ensure()
        except RedisAway as outage:
            assert isinstance(self._api, Calls), "they have the journal"  # noqa: S101
            self._api.cut_off(outage)
        return begun.is_due

    def _done(self, result: Any) -> Any:
        """The result as a later run gets it. If the process dies before it is recorded, the step is uncertain; after
        that, it is done.
        """
        try:
            encoded = encode(result, f"result of step {self.name}")
            check_keys(result, f"result of step {self.name}")
        except SessionError as error:
            self._record(b"")
            raise StepError(f"{error}. The step is done, and later runs do not repeat it") from None
        self._record(encoded)
        return json.loads(encoded)

    def _record(self, encoded: bytes) -> None:
        if self._begun is not None:
            self._begun.done_with(encoded)

    def _known(self) -> Any:
        """The result that an earlier run recorded; None for a step that is skipped."""
        begun = self._begun
        assert begun is not None, "it has begun"  # noqa: S101
        if not (begun.is_skipped or begun.has_result):
            raise StepError(
                f"step {self.name} was done by an earlier run, which could not store its result; it is not repeated"
            )
        return begun.outcome


def _place(ctx: StepContext, name: str, journal: CallJournal | None) -> str:
    if journal is not None:
        return journal.place_of_step(name)
    numbers: Counter[str] = ctx.__dict__.setdefault("steps", Counter())
    numbers[name] += 1
    return f"step/{name}/{numbers[name]}"


def _id_of(ctx: StepContext) -> str:
    """Identifies the updates of this run. A message that an interrupt has extended has the same id, but a newer update,
    and its steps are other steps. So are those after a question whose answer an interrupt has extended.
    """
    number, answer = ctx.update.get("update_id"), ctx.__dict__.get("newest_of_answer")
    if ctx.stored is None:
        return str(number)
    found = ctx.stored.message_id if number is None else f"{ctx.stored.bot_id}:{number}"
    return found if answer is None else f"{found}-{answer}"


def _wanted(function: Callable[..., Any], args: Any, kwargs: Any, known: dict[str, Any]) -> dict[str, Any]:
    """Those of the known values that the function has parameters for, and that the caller did not pass."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function of C without a signature
        return {}
    given = signature.bind_partial(*args, **kwargs).arguments
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {
        name: known[name]
        for name, parameter in signature.parameters.items()
        if name in known and name not in given and parameter.kind in named
    }


def _is_undone(error: BaseException) -> bool:
    """False if the function was interrupted, by the end of its run: then it may have taken effect."""
    return isinstance(error, Exception) and not isinstance(error, LanesError | SoftTimeLimitExceeded)
