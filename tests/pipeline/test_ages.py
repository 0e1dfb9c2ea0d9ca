"""MAX_AGE: messages that have waited too long are skipped, or those of one sender are one run."""

from __future__ import annotations

import time
from typing import Any

import pytest

from celery_lanes.protocol import Store, keys
from chatlanes.bot import Bot
from chatlanes.bot.context import Context
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.test_collecting import said, texts
from tests.pipeline.test_interrupts import reached
from tests.support.bots import record
from tests.support.pipeline import BOT_ID, Pipeline, message
from tests.support.talking_bot import ORDERS, execute
from tests.support.waiting import until

HOUR_S = 3600


def handle(ctx: Context) -> None:
    record("start", ctx)
    for order, value in ORDERS.findall(ctx.text):
        execute(ctx, order, value)
    ids = ",".join(str(update["update_id"]) for update in ctx.updates)
    ctx.reply(f"{ids}{' late' if ctx.is_late else ''}")
    record("end", ctx)


async def handle_async(ctx: Any) -> None:
    ids = ",".join(str(update["update_id"]) for update in ctx.updates)
    await ctx.reply(f"{ids}{' late' if ctx.is_late else ''}")


def asking(ctx: Context) -> None:
    if ctx.text == "ask":
        ctx.reply(f"heard {ctx.ask('What?')}")


def apologizing(ctx: Context) -> None:
    """Asks, or waits until it is killed in its first run."""
    if ctx.is_late:
        ctx.reply("sorry")
    ctx.reply("answer")
    if ctx.text.startswith("ask"):
        ctx.reply(f"{ctx.ask('Sure?', buttons=['Yes'])} after {ctx.age_s // 3600:.0f} h")
    if ctx.text == "fail":
        raise RuntimeError("the handler fails")
    while ctx.text == "hold" and ctx.attempt == 1:
        record("at-hold", ctx)
        time.sleep(60)


bot, bot_async = Bot(handle), Bot(handle_async)
BOT, ASYNC, ASKING, SORRY = (f"{__name__}:{name}" for name in ("bot", "bot_async", "asking", "apologizing"))


def appended(pipeline: Pipeline, *updates: dict[str, Any]) -> list[int]:
    """The ids of these updates, when they are in their lanes."""
    before = pipeline.count("appended") + pipeline.count("collected")
    ids = [each for each in pipeline.simulator.push(*updates) if each is not None]
    until(lambda: pipeline.count("appended") + pipeline.count("collected") == before + len(ids))
    return ids


def make_old(pipeline: Pipeline, *ids: int, by_s: int = HOUR_S) -> None:
    """As if these had waited for longer."""
    for number in ids:
        message_id, by_us = f"{BOT_ID}:{number}", by_s * 1_000_000
        lanes = pipeline.redis.hget(keys.message(message_id), "lanes") or b""
        pipeline.redis.hincrby(keys.message(message_id), "seq", -by_us)
        for lane in lanes.decode().split("\n"):
            pipeline.redis.zincrby(keys.lane(lane), -by_us, message_id)


def of(kind: str, **body: Any) -> dict[str, Any]:
    ann = {"id": 7, "is_bot": False, "first_name": "Ann"}
    return {kind: {"message_id": 1, "date": 0, "chat": {"id": 7, "type": "private"}, "from": ann, **body}}


def answers(pipeline: Pipeline) -> list[str]:
    return sorted(text for text in said(pipeline) if text != "one moment")


# -- skip


@pytest.mark.first_only
@pytest.mark.parametrize(("path", "pool"), [(BOT, "prefork"), (BOT, "gevent"), (ASYNC, "threads")])
def test_late_messages_are_skipped(make_pipeline: MakePipeline, path: str, pool: str) -> None:
    # Given messages that have waited for an hour, in a chat and in another one, and one that has not
    pipeline = make_pipeline(BOT=path, MAX_AGE=600)
    pipeline.poller()
    old = appended(pipeline, *texts("a", "/start", "c"), of("edited_message", text="d"), *texts("e", chat=8))
    make_old(pipeline, *old)
    [fresh] = appended(pipeline, *texts("f"))
    # When a worker starts
    worker = pipeline.worker(pool, 2)
    pipeline.drained()
    # Then they are settled without a run, and counted
    assert answers(pipeline) == [str(fresh)]
    assert (pipeline.count("skipped"), pipeline.count("settled")) == (5, 6)
    assert f"{BOT_ID}:{old[0]}: not run: its message is 36" in worker.log
    assert f"{BOT_ID}:{old[3]}: not run: its edited_message is 36" in worker.log
    assert pipeline.leftovers() == []


def test_what_is_no_ordinary_message_is_not_skipped(make_pipeline: MakePipeline) -> None:
    # Given updates of other kinds that have waited for an hour: payments, CONTROL, service messages, buttons
    pipeline = make_pipeline(BOT=BOT, MAX_AGE=600)
    pipeline.poller()
    payment = {"currency": "XTR", "total_amount": 1}
    old = appended(
        pipeline,
        of("message", text="paid", successful_payment=payment),
        of("message", successful_payment=payment),
        of("message", new_chat_title="x"),
        of("callback_query", data="x"),
        of("my_chat_member"),
        *texts("/stop"),
    )
    make_old(pipeline, *old)
    pipeline.worker("threads", 2)
    pipeline.drained()
    assert sorted(pipeline.happened("start")) == old
    assert pipeline.count("skipped") == 0


def test_the_answer_to_a_question_is_not_skipped(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=ASKING, MAX_AGE=600)
    pipeline.poller()
    worker = pipeline.worker("threads", 2)
    appended(pipeline, *texts("ask"))
    until(lambda: said(pipeline) == ["What?"])
    pipeline.drained()
    worker.stop()
    make_old(pipeline, *appended(pipeline, *texts("the answer")))
    pipeline.worker("threads", 2)
    pipeline.drained()
    assert said(pipeline) == ["What?", "heard the answer"]
    assert pipeline.count("skipped") == 0


def test_a_run_that_has_begun_is_not_skipped(make_pipeline: MakePipeline) -> None:
    # Given a message whose run fails after a call, and is tried again when the message is late
    pipeline = make_pipeline(BOT=BOT, MAX_AGE=3, RETRY_BACKOFF=4)
    pipeline.poller()
    pipeline.worker("threads", 2)
    [update] = appended(pipeline, *texts("fails:1"))
    pipeline.drained()
    assert answers(pipeline) == [f"{update} late"]
    # And one that a worker was killed with
    [killed] = appended(pipeline, *texts("gate:a", chat=8))
    reached(pipeline, "a")
    pipeline.workers[0].kill_all()
    make_old(pipeline, killed)
    pipeline.open("a")
    pipeline.worker("threads", 2)
    pipeline.drained()
    assert answers(pipeline) == sorted([f"{update} late", f"{killed} late"])
    assert pipeline.count("skipped") == 0


def test_a_group_is_skipped_only_if_its_newest_message_is_late(make_pipeline: MakePipeline) -> None:
    # Given two groups that began an hour ago; in one of them, the newest message was written half an hour later
    settings = {"COLLECT": "messages", "COLLECT_QUIET": 60, "COLLECT_MAX_WAIT": 300, "COLLECT_MAX": 2}
    pipeline = make_pipeline(BOT=BOT, MAX_AGE=2000, **settings)
    pipeline.poller()

    def written(chat: int, after_s: int) -> dict[str, Any]:
        [update] = texts("a", chat=chat)
        update["message"]["date"] = 1_800_000_000 + after_s
        return update

    old, _, first, newest = appended(pipeline, written(7, 0), written(7, 10), written(8, 0), written(8, 1800))
    make_old(pipeline, old, first)
    pipeline.worker("threads", 2)
    pipeline.drained()
    assert answers(pipeline) == [f"{first},{newest}"]
    assert pipeline.count("skipped") == 1


# -- collect


@pytest.mark.first_only
@pytest.mark.parametrize(("path", "pool"), [(BOT, "prefork"), (BOT, "threads"), (ASYNC, "threads")])
def test_late_messages_are_one_run(make_pipeline: MakePipeline, path: str, pool: str) -> None:
    # Given a group with messages of two people that have waited for an hour, and one that has not
    pipeline = make_pipeline(BOT=path, MAX_AGE=600, MAX_AGE_ACTION="collect", COLLECT_MAX=3)
    pipeline.poller()
    old = appended(
        pipeline,
        *texts("a", "b", "c", "d", chat=-7, user=1),
        *texts("e", "f", chat=-7, user=2),
        *texts("/start", chat=-7, user=2),
        *texts("g", chat=-7, user=2),
    )
    make_old(pipeline, *old)
    [fresh] = appended(pipeline, *texts("h", chat=-7, user=2))
    # When a worker starts
    pipeline.worker(pool, 2)
    pipeline.drained()
    # Then successive ones of one person are one run, up to COLLECT_MAX
    a, b, c, d, e, f, start, g = old
    late = [f"{a},{b},{c}", str(d), f"{e},{f}", str(start), str(g)]
    assert said(pipeline) == [*(f"{each} late" for each in late), str(fresh)]
    assert (pipeline.count("collected"), pipeline.count("skipped"), pipeline.count("settled")) == (3, 0, 9)
    assert pipeline.leftovers() == []


def test_a_rerun_gets_the_same_late_messages(make_pipeline: MakePipeline) -> None:
    # Given a run of late messages whose worker is killed with kill -9
    pipeline = make_pipeline(BOT=BOT, MAX_AGE=600, MAX_AGE_ACTION="collect", LEASE_SECONDS=1)
    pipeline.poller()
    old = appended(pipeline, *texts("a", "b", "gate:a"))
    make_old(pipeline, *old)
    worker = pipeline.worker("prefork", 2)
    reached(pipeline, "a")
    assert pipeline.pending() == 1
    behind = appended(pipeline, *texts("behind"))
    make_old(pipeline, *behind)
    worker.kill_all()
    pipeline.open("a")
    # Then the next run has the same ones, and no other
    pipeline.worker("threads", 2)
    pipeline.drained()
    assert said(pipeline) == [f"{','.join(map(str, old))} late", f"{behind[0]} late"]
    assert pipeline.leftovers() == pipeline.dead() == []


def test_a_backlog_is_collected_after_the_setting_is_changed(make_pipeline: MakePipeline) -> None:
    """An operator who finds a backlog sets MAX_AGE, and restarts the workers only."""
    pipeline = make_pipeline(BOT=BOT)
    pipeline.poller()
    old = appended(pipeline, *(message(n, chat) for n in range(1, 11) for chat in (7, 8)))
    make_old(pipeline, *old)
    pipeline.worker("threads", 2, MAX_AGE=600, MAX_AGE_ACTION="collect")
    pipeline.drained()
    assert len(answers(pipeline)) == 2
    assert pipeline.count("collected") == 18


def test_a_failed_run_of_late_messages_is_buried_and_replayed_as_one(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=BOT, MAX_AGE=600, MAX_AGE_ACTION="collect", MAX_ATTEMPTS=1)
    pipeline.poller()
    old = appended(pipeline, *texts("a", "fails:1"))
    make_old(pipeline, *old)
    pipeline.worker("threads", 2)
    pipeline.drained()
    assert pipeline.dead() == [f"{BOT_ID}:{old[0]}"]
    assert pipeline.command("lanes", "dead", "replay", "--all").exit_code() == 0
    pipeline.drained()
    assert pipeline.happened("start") == [old[1], old[1]]


# -- a run after a crash, and one that continues after a question, decide as the first one did


@pytest.mark.parametrize(("is_late", "says"), [(False, ["answer"]), (True, ["sorry", "answer"])])
def test_a_run_after_a_crash_is_late_if_the_first_one_was(
    make_pipeline: MakePipeline, is_late: bool, says: list[str]
) -> None:
    # Given a run that has begun in time, or late, and whose worker dies
    pipeline = make_pipeline(BOT=SORRY, MAX_AGE=600, MAX_AGE_ACTION="collect", LEASE_SECONDS=2)
    pipeline.poller()
    [held] = appended(pipeline, *texts("hold"))
    if is_late:
        make_old(pipeline, held)
    worker = pipeline.worker("threads", 2)
    until(lambda: any(event.what == "at-hold" for event in pipeline.history))
    worker.kill_all()
    # When the next one begins an hour later
    make_old(pipeline, held)
    pipeline.worker("threads", 2)
    pipeline.drained()
    # Then it makes the same calls, none twice
    assert said(pipeline) == says
    assert pipeline.leftovers() == []


def test_a_late_update_that_is_replayed_is_late_again(make_pipeline: MakePipeline) -> None:
    # Given a late update whose run has made its calls, and then fails
    pipeline = make_pipeline(BOT=SORRY, MAX_AGE=600, MAX_AGE_ACTION="collect", MAX_ATTEMPTS=1)
    pipeline.poller()
    [late] = appended(pipeline, *texts("fail"))
    make_old(pipeline, late)
    pipeline.worker("threads", 2)
    pipeline.drained()
    assert pipeline.dead() == [f"{BOT_ID}:{late}"]
    # When it is replayed, which makes it new
    assert Store(pipeline.redis).replay(f"{BOT_ID}:{late}")
    pipeline.drained()
    # Then it makes the same calls, none twice
    assert said(pipeline) == ["sorry", "answer"]


def test_a_handler_that_asks_stays_late(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=SORRY, MAX_AGE=600, MAX_AGE_ACTION="collect")
    pipeline.poller()
    make_old(pipeline, *appended(pipeline, *texts("ask")))
    pipeline.worker("threads", 2)
    pipeline.drained()
    pipeline.push(*texts("Yes"))
    pipeline.drained()
    assert said(pipeline) == ["sorry", "answer", "Sure?", "Yes after 1 h"]
