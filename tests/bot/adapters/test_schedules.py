"""Schedules of bots of other frameworks may use the framework's calls: they are journaled like those of a handler."""

from __future__ import annotations

import pytest

from tests.bot.adapters.test_matrix import texts
from tests.pipeline.conftest import MakePipeline
from tests.support.waiting import until

MODULE = "tests.bot.adapters.bots.schedules"


@pytest.mark.parametrize("framework", ["aiogram", "ptb"])
def test_a_second_attempt_repeats_no_call(make_pipeline: MakePipeline, framework: str) -> None:
    pipeline = make_pipeline(
        BOT=f"{MODULE}:{framework}_bot", SCHEDULES=f"{MODULE}:of_{framework}", RETRY_BACKOFF=0.1, LEASE_SECONDS=2
    )
    pipeline.worker("threads", 2)
    until(lambda: texts(pipeline, 7)[:2] == ["digest, attempt 1", "done"])
