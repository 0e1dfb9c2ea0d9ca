"""Blocking calls of coroutines run in parallel up to a limit, and each caller receives its result."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from threading import Barrier, Event, current_thread

import pytest

from chatlanes.bot import event_loop as module
from chatlanes.bot.event_loop import blocking_executor

caller = ContextVar("caller", default="none")


def test_calls_run_in_parallel_and_threads_are_reused() -> None:
    barrier = Barrier(8)

    def call() -> object:
        barrier.wait(60)
        return current_thread()

    async def both() -> tuple[set[object], set[object]]:
        first = await asyncio.gather(*(blocking_executor().call(call) for _ in range(8)))
        second = await asyncio.gather(*(blocking_executor().call(call) for _ in range(8)))
        return set(first), set(second)

    first, second = asyncio.run(both())
    assert len(first) == 8
    assert first == second


def test_excess_calls_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CALLS", 2)

    async def many() -> list[int]:
        return await asyncio.gather(*(blocking_executor().call(lambda n=n: n) for n in range(50)))

    assert asyncio.run(many()) == list(range(50))


def test_a_call_runs_in_its_callers_context() -> None:
    async def one() -> object:
        caller.set("me")
        with pytest.raises(ZeroDivisionError):
            await blocking_executor().call(lambda: 1 // 0)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await blocking_executor().call(lambda: next(iter(())))
        return await blocking_executor().call(caller.get)

    assert asyncio.run(one()) == "me"


def test_a_cancelled_caller_does_not_affect_others() -> None:
    is_cancelled = Event()

    async def cancel() -> object:
        call = blocking_executor().call(lambda: is_cancelled.wait(60))
        call.cancel()
        is_cancelled.set()
        return await blocking_executor().call(lambda: "served")

    assert asyncio.run(cancel()) == "served"
