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
    if journal is None or not isinstance(ctx.api, Calls):
        return Unrecorded(name, call).result()
    return Step(name, call, ctx.api, journal.at(place), uncertain).result()


class Unrecorded:
    """A step without a lane: its function is called in every run."""

    def __init__(self, name: str, function: Callable[[], Any]) -> None:
        self.name, self.function = name, function
        self._span: traces.NoSpan = traces.NO_SPAN

    def result(self) -> Any:
        """The function's result, or in a coroutine an awaitable of it."""
        if is_in_coroutine():
            coroutine = self._soon()
            self._expect_await(partial(has_begun, coroutine))
            return coroutine
        if is_async(self.function):
            raise StepError(
                f"the function of step {self.name} is a coroutine function: await ctx.step in an async def handler"
            )
        with self._traced():
            return self._called()

    def _expect_await(self, is_awaited: Callable[[], bool]) -> None:
        """Without a run there is nothing to fail."""

    async def _soon(self) -> Any:
        with self._traced():
            return await self._awaited()

    @contextmanager
    def _traced(self) -> Iterator[None]:
        with traces.here().stepping(self.name, ending_of) as self._span:
            yield

    def _called(self) -> Any:
        with self._inside():
            result = self.function()
        return self._done(result)

    async def _awaited(self) -> Any:
        if not is_async(self.function):
            return await finished(blocking_executor().call(self._called))
        with self._inside():
            result = await self.function()
        return await finished(blocking_executor().call(partial(self._done, result)))

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """The function may make no call that has a place in the journal: a later run does not call it."""
        token = IN_STEP.set(self.name)
        try:
            yield
        finally:
            IN_STEP.reset(token)

    def _done(self, result: Any) -> Any:
        """The result as a later run gets it."""
        return json.loads(self._encoded(result))

    def _encoded(self, result: Any) -> bytes:
        try:
            encoded = encode(result, f"result of step {self.name}")
            check_keys(result, f"result of step {self.name}")
        except SessionError as error:
            raise StepError(f"{error}. The step is done, and later runs do not repeat it") from None
        return encoded


class Step(Unrecorded):
    """A step of a run with a lane, at a place of its own in the journal: the name and the number of the step."""

    def __init__(
        self, name: str, function: Callable[[], Any], calls: Calls, journal: CallJournal, uncertain: Uncertain | None
    ) -> None:
        super().__init__(name, function)
        self._calls, self._journal, self._uncertain = calls, journal, uncertain
        self._begun: JournaledCall | None = None

    @property
    def _life(self) -> Lifecycle:
        return self._calls.life

    def _expect_await(self, is_awaited: Callable[[], bool]) -> None:
        self._life.expect_await(f"ctx.step({self.name!r}, …)", is_awaited)

    def _called(self) -> Any:
        begun = self._begin()
        if not begun.is_due:
            return self._answer(begun)
        try:
            with self._inside():
                result = self.function()
        except Exception as error:
            if _is_undone(error):
                begun.undone()
            raise
        return self._done(result)

    async def _awaited(self) -> Any:
        with self._life.tracked():
            if not is_async(self.function):
                return await finished(blocking_executor().call(self._called))
            is_called = False
            try:
                begun = await finished(blocking_executor().call(self._begin))
                if not begun.is_due:
                    return self._answer(begun)
                is_called = True
                with self._inside():
                    result = await self.function()
            except BaseException as error:
                # If it was cancelled during the begin, the function was certainly not called.
                if self._begun is not None and (_is_undone(error) if is_called else self._begun.is_due):
                    await finished(blocking_executor().call(self._begun.undone))
                raise
            return await finished(blocking_executor().call(partial(self._done, result)))

    def _begin(self) -> JournaledCall:
        """Raises LeaseLost, and ParkUpdate if Redis is away; then the function is not called."""
        if not self._life.is_open:
            raise LeaseLost(f"the handler has ended; step {self.name} was not called: await ctx.step in the handler")
        try:
            self._begun = begun = self._journal.begin("step", self.name, uncertain=self._uncertain)
            self._span.set(replayed=not begun.is_due)
            if begun.is_due:
                begun.ensure()
        except RedisAway as outage:
            self._calls.cut_off(outage)
        return begun

    def _done(self, result: Any) -> Any:
        """Record the result. If the process dies before this, the step is uncertain; after it, it is done."""
        assert self._begun is not None, "it has begun"  # noqa: S101
        try:
            encoded = self._encoded(result)
        except StepError:
            self._begun.done_with(b"")
            raise
        self._begun.done_with(encoded)
        return json.loads(encoded)

    def _answer(self, begun: JournaledCall) -> Any:
        """The result that an earlier run recorded; None for a step that is skipped."""
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
