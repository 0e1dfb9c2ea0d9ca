"""Blocking calls of coroutines: parallel up to a limit, each result to its caller."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from threading import Barrier, Event, current_thread

import pytest

from chatlanes.lanes.worker import executor as module
from chatlanes.lanes.worker.executor import blocking_executor

who = ContextVar("who", default="nobody")


def test_calls_run_beside_each_other_and_threads_are_used_again() -> None:
    together = Barrier(8)

    def call() -> object:
        together.wait(60)
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
        who.set("me")
        with pytest.raises(ZeroDivisionError):
            await blocking_executor().call(lambda: 1 // 0)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await blocking_executor().call(lambda: next(iter(())))
        return await blocking_executor().call(who.get)

    assert asyncio.run(one()) == "me"


def test_a_cancelled_caller_does_not_affect_others() -> None:
    goes_on = Event()

    async def impatient() -> object:
        left = blocking_executor().call(lambda: goes_on.wait(60))
        left.cancel()
        goes_on.set()
        return await blocking_executor().call(lambda: "served")

    assert asyncio.run(impatient()) == "served"
