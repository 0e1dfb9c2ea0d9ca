"""A deploy under load: every poller and worker is restarted in turn, with new code of the bot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import Pipeline, message
from tests.support.waiting import until

CHATS = 20
#: Each chat sends an update in this interval. An update takes 20 ms: the load is more than one worker can process, but
#: less than two can.
EVERY_S = 0.25
ORDERS = "counts:1 takes:20"

BOT = """
from tests.support import bots

def handle(ctx):
    bots.handle(ctx)
    ctx.session["versions"] = sorted({*ctx.session.get("versions", []), %d})
"""


@contextmanager
def constant_load(pipeline: Pipeline) -> Iterator[None]:
    """Push updates inside of the block. The simulator's client is not thread-safe: do not use it meanwhile."""
    is_over = Event()

    def push() -> None:
        number = 0
        while not is_over.wait(EVERY_S):
            number += 1
            pipeline.push(*(message(number, chat, do=ORDERS) for chat in range(1, CHATS + 1)))

    thread = Thread(target=push)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_rolling_restart_loses_and_repeats_nothing(make_pipeline: MakePipeline) -> None:
    # Given a leading poller, a standby poller and two workers, under constant load
    pipeline = make_pipeline(BOT="shop:handle")
    code = pipeline.directory / "shop.py"
    code.write_text(BOT % 1)
    leader = pipeline.poller()
    leader.tells("leading")
    standby = pipeline.poller()
    workers = [pipeline.worker("prefork", 2), pipeline.worker("threads", 8)]
    with constant_load(pipeline):
        pipeline.some_ended(2 * CHATS)
        # When each worker is restarted, with new code of the bot
        code.write_text(BOT % 2)
        for old, (pool, slots) in zip(workers, [("prefork", 2), ("threads", 8)], strict=True):
            old.stop()
            renewed = pipeline.worker(pool, slots)
            until(lambda name=renewed.name: any(event.worker == name for event in pipeline.history))
        # And each poller, the leader first
        leader.stop()
        standby.tells("leading")
        leader = pipeline.poller()
        leader.tells("standing by")
        standby.stop()
        leader.tells("leading")
        pipeline.some_ended(len(pipeline.happened("end")) + 2 * CHATS)
    pipeline.drained()
    # Then every update ran once, in order, in its first attempt
    pipeline.check_once_each()
    assert {event.attempt for event in pipeline.history} == {1}
    assert all(numbers == sorted(numbers) for numbers in pipeline.simulator.answers().values())
    # And no update was fetched twice, taken from a live worker, refused, retried or buried
    kinds = ["seen", "expired", "refused", "retried", "buried"]
    assert {kind: pipeline.count(kind) for kind in kinds} == dict.fromkeys(kinds, 0)
    # And the new code continued with the sessions of the old code
    each = len(pipeline.lanes) // CHATS
    kept = [pipeline.session(chat) for chat in range(1, CHATS + 1)]
    assert kept == [{"n": each, "versions": [1, 2]}] * CHATS
    assert pipeline.leftovers() == []
