"""USER_RATE: updates over the rate of their user are dropped, wait for their turn, or are answered once."""

from __future__ import annotations

from typing import Any

import pytest

from celery_lanes.protocol import keys
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.test_collecting import said, texts
from tests.pipeline.test_interrupts import events
from tests.support.pipeline import BOT_ID, message
from tests.support.waiting import until

PLAIN, COROUTINES = "tests.support.talking_bot:bot_limited", "tests.support.talking_bot:bot_async_limited"


def paid(number: int, user: int) -> dict[str, Any]:
    update = message(number, user)
    update["message"]["successful_payment"] = {"currency": "XTR", "total_amount": 1}
    return update


def test_a_killed_poller_counts_each_update_once(make_pipeline: MakePipeline) -> None:
    # Given two pollers, of which one leads, and has appended three updates that are not confirmed to Telegram
    pipeline = make_pipeline(USER_RATE="5/3600")
    first = pipeline.poller(MAX_PENDING=3)
    until(lambda: "leading" in first.log)
    pipeline.poller()
    updates = pipeline.push(*[message(n, 7) for n in range(1, 9)], *[message(n, 8) for n in range(1, 3)], paid(9, 7))
    until(lambda: "fetching stops" in first.log)
    assert pipeline.count("appended") >= 3
    assert pipeline.simulator.stats()["confirmed"] < 3
    # When it is killed
    first.kill_all()
    # Then the other one gets them again, and they count once: two more are within the rate
    until(lambda: pipeline.simulator.stats()["confirmed"] == 11)
    assert pipeline.count("seen") > 0
    # And the updates of another user, and a payment, are not affected
    pipeline.worker("threads", 4)
    pipeline.drained()
    assert sorted(pipeline.happened("end")) == [*updates[:5], *updates[8:]]
    assert (pipeline.count("rate_dropped"), pipeline.count("settled")) == (3, 8)
    assert pipeline.leftovers() == pipeline.dead() == []


def test_dropped_updates_are_in_the_log_of_the_poller(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(USER_RATE="1/3600", USER_RATE_BY="chat")
    poller = pipeline.poller()
    pipeline.push(*texts("a", "b", "c", chat=-7, user=1), *texts("d", chat=-7, user=2))
    until(lambda: pipeline.simulator.stats()["confirmed"] == 4)
    poller.stop()
    assert "1 added, 0 seen before, 0 buried, 0 filtered out" in poller.log
    assert "; 3 over USER_RATE were dropped" in poller.log


def test_a_delayed_update_waits_with_its_lane_and_not_on_a_slot(make_pipeline: MakePipeline) -> None:
    # Given a worker with one slot, and more updates of a user in one group than the user may cause
    pipeline = make_pipeline(USER_RATE="1/5", USER_RATE_OVER="delay")
    pipeline.poller()
    pipeline.worker("threads", 1)
    first, late, behind, other = pipeline.push(
        message(1, -7, user=7), message(2, -7, user=7), message(3, -7, user=8), message(1, 9)
    )
    pipeline.drained()
    # Then another chat does not wait for it, and its own does, in order
    assert set(pipeline.happened("start")[:2]) == {first, other}
    assert pipeline.happened("start")[2:] == [late, behind]
    # And it was not tried before its turn
    assert {event.attempt for event in pipeline.history} == {1}
    assert (pipeline.count("handed_out"), pipeline.count("parked"), pipeline.count("retried")) == (4, 0, 0)


def test_delayed_updates_survive_a_kill_of_the_worker(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(USER_RATE="1/2", USER_RATE_OVER="delay", LEASE_SECONDS=1)
    pipeline.poller()
    worker = pipeline.worker("threads", 2)
    updates = pipeline.push(*(message(n, 7) for n in range(1, 5)))
    pipeline.ended(updates[0])
    worker.kill_all()
    pipeline.worker("threads", 2)
    pipeline.drained()
    pipeline.check_order(worker)
    assert pipeline.leftovers() == []


@pytest.mark.first_only
@pytest.mark.parametrize(("bot", "pool"), [(PLAIN, "prefork"), (PLAIN, "gevent"), (COROUTINES, "threads")])
def test_one_update_over_the_rate_is_answered(make_pipeline: MakePipeline, bot: str, pool: str) -> None:
    pipeline = make_pipeline(BOT=bot, USER_RATE="2/3600", USER_RATE_OVER="answer")
    pipeline.poller()
    worker = pipeline.worker(pool, 2)
    pipeline.push(*texts("a", "b", "c", "d"), *texts("e", chat=8))
    pipeline.drained()
    pipeline.push(*texts("/stop"))
    pipeline.drained()
    # Then on_limited is called once, in its place, and the others are dropped; other users and /stop are not affected
    answers = [text.partition(": ")[2] or text for text in said(pipeline)]
    assert sorted(answers) == sorted(["a", "b", "slowly, after 2 runs", "e", "/stop"])
    assert (pipeline.count("rate_marked"), pipeline.count("rate_dropped"), pipeline.count("settled")) == (1, 1, 5)
    assert events(pipeline).count("on_limited") == 1
    assert not {"ERROR", "Traceback"} & set(worker.log.split())


def test_on_limited_that_fails_runs_again(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=PLAIN, USER_RATE="1/3600", USER_RATE_OVER="answer", RETRY_BACKOFF=0)
    pipeline.poller()
    pipeline.worker("threads", 2)
    pipeline.push(*texts("a", "fails:1", "c"))
    pipeline.drained()
    assert [event.attempt for event in pipeline.history if event.what == "on_limited"] == [1, 2]
    assert said(pipeline)[-1] == "slowly, after 1 runs"


def test_a_bot_without_on_limited_cannot_answer(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(USER_RATE="1/3600", USER_RATE_OVER="answer")
    worker = pipeline.worker("threads", 2, is_awaited=False)
    worker.tells("USER_RATE_OVER=answer, but tests.support.bots:handle has no on_limited")
    assert worker.exit_code() != 0
    # And a worker with other settings settles the update that is to be answered
    pipeline.poller()
    [_, limited] = pipeline.push(*texts("a", "b"))
    worker = pipeline.worker("threads", 2, USER_RATE_OVER="drop")
    pipeline.drained()
    assert pipeline.count("skipped") == 1
    worker.tells(f"{BOT_ID}:{limited}: not run: it is over USER_RATE, and the bot has no on_limited")


def test_a_bot_without_a_rate_stores_none(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()
    pipeline.poller()
    pipeline.worker("threads", 2)
    pipeline.push(*texts("a", "b"))
    pipeline.drained()
    assert [*pipeline.redis.scan_iter(keys.RATE + "*")] == []
