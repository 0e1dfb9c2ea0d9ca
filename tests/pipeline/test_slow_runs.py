"""A handler that keeps its own chat waiting is reported once, with its name and its line."""

from __future__ import annotations

import re
from pathlib import Path

from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import message, one_chat_each
from tests.support.waiting import until

HANDLE, HANDLE_ASYNC = "tests.support.bots:handle", "tests.support.bots:handle_async"
AIOGRAM = "tests.bot.adapters.bots.aiogram:dp"
#: Bot, pool, slots -> the handler, and the file in which it waits.
CELLS = {
    (HANDLE, "prefork", 1): ("handle", "bots.py"),
    (HANDLE, "gevent", 4): ("handle", "bots.py"),
    (HANDLE_ASYNC, "threads", 4): ("handle_async", "bots.py"),
    (AIOGRAM, "prefork", 1): ("answer", "aiogram.py"),
}
REPORT = re.compile(
    r"WARNING.* (\w+) has run for 1\d s and is at (\S+), line \d+, while newer updates of its lane \(2\)"
)


def test_a_handler_that_waits_is_named(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(QUEUES=len(CELLS))
    pipeline.poller()
    workers = pipeline.start_workers(list(CELLS))
    for chat in one_chat_each(workers):
        # Given a handler that waits while two more messages of its chat arrive
        pipeline.push(message(1, chat, do="waits gate:gate"), message(2, chat), message(3, chat))
    # Then its worker says where it waits, and in what handler
    until(lambda: all(REPORT.search(worker.log) for worker in workers))
    pipeline.open("gate")
    pipeline.drained()
    said = [REPORT.findall(worker.log) for worker in workers]
    assert [[(name, Path(file).name) for name, file in each] for each in said] == [[where] for where in CELLS.values()]
