"""ctx.arrivals and ctx.mode without a worker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chatlanes.bot.calls.questions import Question
from chatlanes.bot.context import Context

UPDATE = {"update_id": 9, "message": {"message_id": 3, "chat": {"id": 7, "type": "private"}, "text": "go"}}


class Api:
    def call(self, method: str, /, **params: Any) -> Any:
        raise AssertionError(method)


def test_nothing_arrives_in_a_context_without_a_lane() -> None:
    ctx = Context(UPDATE, Api())
    assert not ctx.arrived
    assert [*ctx.arrivals()] == []


def test_a_coroutine_needs_async_for() -> None:
    async def handle(ctx: Context) -> list[dict[str, Any]]:
        with pytest.raises(TypeError, match=r"use `async for update in ctx\.arrivals"):
            [*ctx.arrivals()]
        return [update async for update in ctx.arrivals()]

    assert asyncio.run(handle(Context(UPDATE, Api()))) == []


def test_what_was_taken_before_a_question_is_stored_with_it() -> None:
    question = Question("5-1", "Sure?", {}, [], "pass", 7, [UPDATE], arrived=[(2, UPDATE)])
    assert Question.of(question.stored()).arrived == [[2, UPDATE]]
    # A question without it is as older releases store it
    question.arrived = []
    assert b"arrived" not in question.stored()


def test_a_mode_without_a_lane_is_only_remembered() -> None:
    ctx = Context(UPDATE, Api(), default_mode="collect")
    assert ctx.mode == "collect"
    ctx.mode = "steer"
    assert ctx.mode == "steer"
    ctx.mode = None  # type: ignore[assignment]
    assert ctx.mode == "collect"
    with pytest.raises(ValueError, match="'faster' is not a mode: use queue, collect, interrupt, steer or None"):
        ctx.mode = "faster"  # type: ignore[assignment]
