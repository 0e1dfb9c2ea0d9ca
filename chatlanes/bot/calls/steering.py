"""Newer updates of a chat, while a handler runs: ctx.arrivals takes them, ctx.mode chooses how they are handled.

Guarantees of an update that was yielded (INTERRUPT=steer) that it is settled with this run and is in no other one, and
that a later run of the handler gets it in the same place: between the same calls, steps, streams and questions. A mode
holds for updates that are appended after the run which chose it was settled; a run which fails chooses none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol, get_args

from celery_lanes.errors import RedisAway
from celery_lanes.protocol import Mode, SetMode
from chatlanes.bot.calls.questions import Question
from chatlanes.bot.calls.run_calls import Api, Calls
from chatlanes.bot.event_loop import blocking_executor, finished, is_in_coroutine
from chatlanes.bot.interrupts import Interrupts
from chatlanes.bot.stored import Stored
from chatlanes.updates.parsing import read

#: The place in the handler at which an update was taken, and the update.
Taken = tuple[int, dict[str, Any]]

_MODES = get_args(Mode)


class SteeredContext(Protocol):
    """The parts of a context that are used here."""

    api: Api
    interrupts: Interrupts | None
    question: Question | None
    stored: Stored | None
    default_mode: Mode


class ArrivedUpdates:
    """The arrivals in the run of a context. Iterating ends when there is nothing more; it may be repeated."""

    def __init__(self, ctx: SteeredContext) -> None:
        self._ctx = ctx

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if is_in_coroutine():
            raise TypeError("in a coroutine, use `async for update in ctx.arrivals()`")
        while (update := self._next()) is not None:
            yield update

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        while self.has_any:
            await finished(blocking_executor().call(self._fetch))
            update = self._next()  # does not ask Redis any more
            if update is None:
                return
            yield update

    @property
    def has_any(self) -> bool:
        place = self._place
        if place is None:
            return False
        if again := self._again:
            return again[0][0] <= place
        interrupts = self._ctx.interrupts
        if interrupts is None or not interrupts.delivery.has_arrived(place):
            return False
        # A newer update must not arrive before a call that this run only repeats: it could not change that call.
        return interrupts.delivery.repeats_arrivals or place >= self._ctx.__dict__.get("reached_before", 0)

    def _fetch(self) -> None:
        """Raises LeaseLost, and ParkUpdate if Redis is away."""
        calls, interrupts, place = self._ctx.api, self._ctx.interrupts, self._place
        if interrupts is None or place is None or self._again:
            return
        assert isinstance(calls, Calls), "a run with a place has calls"  # noqa: S101
        assert calls.journal is not None  # noqa: S101
        try:
            if "reached_before" not in self._ctx.__dict__:
                self._ctx.__dict__["reached_before"] = calls.journal.reached()
            if self.has_any:
                interrupts.delivery.fetch_arrival(place)
        except RedisAway as outage:
            calls.cut_off(outage)

    def _next(self) -> dict[str, Any] | None:
        if not self.has_any:
            return None
        place, again, interrupts = self._place or 0, self._again, self._ctx.interrupts
        if again:
            update = again.popleft()[1]
        else:
            self._fetch()
            body = interrupts.delivery.take_arrival(place) if interrupts is not None and self.has_any else None
            if body is None:
                return None
            update = read(body.encode())[0][0]
        self._ctx.__dict__.setdefault("taken", []).append((place, update))  # for ctx.ask
        return update

    @property
    def _place(self) -> int | None:
        """How far the handler has come. None: in a hook, or in a test, nothing is taken."""
        journal = self._ctx.api.journal if isinstance(self._ctx.api, Calls) else None
        return None if journal is None or journal.is_of_hook else journal.progress

    @property
    def _again(self) -> deque[Taken]:
        """Updates that the run which asked the question (ctx.ask) had taken, and this one has not got yet."""
        question = self._ctx.question
        found: deque[Taken] = self._ctx.__dict__.setdefault(
            "arrived_before", deque((place, update) for place, update in (question.arrived if question else ()))
        )
        return found


def mode_of(ctx: SteeredContext) -> Mode:
    """Raises LeaseLost, and ParkUpdate if Redis is away."""
    if "chosen_mode" not in ctx.__dict__:
        ctx.__dict__["has_read_mode"] = True  # a coroutine reads it before the handler then (coroutines.py)
        ctx.__dict__["chosen_mode"] = None if ctx.stored is None else ctx.stored.mode_of()
    chosen: Mode = ctx.__dict__["chosen_mode"]
    return chosen if chosen in _MODES else ctx.default_mode


def choose(ctx: SteeredContext, mode: Mode | None) -> None:
    """Raises ValueError."""
    write = SetMode(mode)
    if ctx.stored is not None:
        if ctx.default_mode == "queue":
            raise ValueError("ctx.mode needs a COLLECT other than none: without it, each update is a run of its own")
        ctx.stored.stage_modes([write])
    ctx.__dict__["chosen_mode"] = mode


def move_mode(stored: Stored, old: int, new: int) -> None:
    """A group has become a supergroup, which keeps its mode. Raises the same as `mode_of`."""
    lanes = [f"{stored.bot_id}/chat:{chat}" for chat in (old, new)]
    mode: Any = stored.mode_of(lanes[0])
    if mode in _MODES:
        stored.stage_modes([SetMode(None, lanes[0]), SetMode(mode, lanes[1])])
