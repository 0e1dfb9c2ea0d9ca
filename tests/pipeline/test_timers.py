"""Timers of a bot, through the whole pipeline: set in the step that settles the update, and run once when due."""

from __future__ import annotations

import json
from typing import Any

import pytest

from celery_lanes.protocol import Store, keys
from chatlanes.broadcasts import Call, Feeder
from chatlanes.settings import Settings
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import BOT_ID, TOKEN, Pipeline, message
from tests.support.waiting import until

BOT = "tests.support.timer_bot:bot"
COROUTINES = "tests.support.timer_bot:coroutines"


def noted(pipeline: Pipeline, what: str) -> list[dict[str, Any]]:
    """The entries that the bot has recorded, oldest first."""
    file = pipeline.directory / "timers"
    whole, _, _ = (file.read_text() if file.exists() else "").rpartition("\n")  # the last line may be incomplete
    events = [json.loads(line) for line in whole.splitlines()]
    return [event for event in events if event["what"] == what]


def names(pipeline: Pipeline, what: str = "ran") -> list[str]:
    return [event["name"] for event in noted(pipeline, what)]


def waiting(pipeline: Pipeline) -> list[str]:
    """The names of the timers in Redis, the next one first."""
    return [each.decode().partition("\n")[2] for each in pipeline.redis.zrange(keys.TIMERS, 0, -1)]


def texts(pipeline: Pipeline) -> list[str]:
    return [call["params"]["text"] for call in pipeline.simulator.calls("sendMessage")]


@pytest.mark.parametrize(
    ("bot", "pool", "fast"),
    [(BOT, "prefork", 1), (BOT, "threads", 1), (BOT, "gevent", 1), (COROUTINES, "threads", 1), (BOT, "threads", 0)],
)
def test_a_timer_runs_once_when_it_is_due(make_pipeline: MakePipeline, bot: str, pool: str, fast: int) -> None:
    # Given a bot with timers
    pipeline = make_pipeline(BOT=bot, FAST=fast)
    pipeline.worker(pool, 2)
    pipeline.poller()
    # When a message sets two, the second of which sets a third
    pipeline.push(message(1, chat=7, do="later:b_600_later_c_100 later:a_300 show:all"))
    until(lambda: len(noted(pipeline, "ran")) == 3)
    pipeline.drained()
    # Then each has run once, in the order of their times, and with its session
    assert names(pipeline) == ["a", "b", "c"]
    assert noted(pipeline, "shown")[0]["names"] == ["a", "b"]
    assert pipeline.session(7) == {"fired": ["a", "b", "c"]}
    assert [event["chat"] for event in noted(pipeline, "timer")] == [7, 7, 7]
    assert all(0 <= event["late_s"] < 20 for event in noted(pipeline, "timer"))
    assert texts(pipeline) == ["a is due", "b is due", "c is due"]
    assert pipeline.leftovers() == []


def test_a_timer_is_set_with_its_update_or_not_at_all(make_pipeline: MakePipeline) -> None:
    # Given a handler that has called ctx.later, and waits
    pipeline = make_pipeline(BOT=BOT, LEASE_SECONDS=1, MAX_ATTEMPTS=2, RETRY_BACKOFF=0)
    first = pipeline.worker("prefork", 2)
    pipeline.poller()
    [killed, buried] = pipeline.push(
        message(1, chat=7, do="later:a_60000 at:b_60000 gate:a"), message(1, chat=8, do="later:c_60000 fails:2")
    )
    until(lambda: names(pipeline, "set").count("b") == 1 and pipeline.dead() == [f"{BOT_ID}:{buried}"])
    # When its worker is killed, Then the timers are not set, nor those of an update that has failed
    first.kill_all()
    assert waiting(pipeline) == []
    # When another worker runs it again, which dies after the commit, Then each is set once
    pipeline.open("a")
    second = pipeline.worker("prefork", 1)
    pipeline.drained()
    assert sorted(waiting(pipeline)) == ["a", "b"]
    assert pipeline.state_of(killed) is None
    pipeline.push(message(2, chat=7, do="dies_after_commit:x later:d_60000"))
    pipeline.drained()
    assert sorted(waiting(pipeline)) == ["a", "b", "d"]
    assert names(pipeline, "set").count("d") == 1
    second.tells("signal 9 (SIGKILL)")


@pytest.mark.parametrize(("bot", "pool"), [(BOT, "prefork"), (COROUTINES, "threads")])
def test_a_timer_whose_worker_is_killed_runs_again_and_is_settled_once(
    make_pipeline: MakePipeline, bot: str, pool: str
) -> None:
    # Given a timer that runs, and sets the next one
    pipeline = make_pipeline(BOT=bot, LEASE_SECONDS=1)
    first = pipeline.worker(pool, 2)
    pipeline.poller()
    pipeline.simulator.fault(method="sendMessage", chat_id=7, hang_s=60)
    pipeline.push(message(1, chat=7, do="later:a_100_later_unnamed_100"))
    until(lambda: pipeline.simulator.calls("sendMessage"))
    # When its worker is killed
    first.kill_all()
    pipeline.worker(pool, 2)
    # Then another one runs it again, and what it sets is set once
    until(lambda: len(names(pipeline)) == 2)
    pipeline.drained()
    again = names(pipeline, "timer")
    assert again[:2] == ["a", "a"]
    assert len(again) == 3
    assert again[2].startswith("timer:")
    assert again[2].endswith("/1")
    assert pipeline.session(7) == {"fired": ["a", again[2]]}
    assert waiting(pipeline) == []


def test_a_timer_waits_for_the_updates_of_its_chat(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=BOT)
    pipeline.worker("threads", 4)
    pipeline.poller()
    # Given an update of the chat that runs when a timer is due, and one that arrived before this
    pipeline.push(message(1, chat=7, do="later:a_1000"), message(2, chat=7, do="gate:a"), message(3, chat=7))
    until(lambda: len(noted(pipeline, "begin")) == 2)
    until(lambda: pipeline.count("fired") == 1)
    # When another chat's timers run meanwhile
    pipeline.push(message(1, chat=8, do="later:b_100"))
    until(lambda: names(pipeline) == ["b"])
    pipeline.push(message(4, chat=7))
    until(lambda: pipeline.pending() == 4)
    pipeline.open("a")
    pipeline.drained()
    # Then it runs after both, and before the one that arrived later
    begun = sorted(noted(pipeline, "begin") + noted(pipeline, "timer"), key=lambda event: event["at"])
    assert [event.get("name") or event["text"][-2:] for event in begun if event["chat"] == 7][1:] == [
        "#2",
        "#3",
        "a",
        "#4",
    ]


def test_a_timer_is_moved_and_cancelled_by_its_name(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=BOT)
    pipeline.worker("threads", 4)
    pipeline.poller()
    # Given a timer that is set again, one that is cancelled, and one of another chat with the same name
    pipeline.push(message(1, chat=7, do="later:a_500 later:b_500 later:c_600"))
    pipeline.push(message(1, chat=8, do="later:b_500"))
    pipeline.push(message(2, chat=7, do="later:a_60000 cancel:b cancel:nothing show:all"))
    until(lambda: len(names(pipeline)) == 2)
    pipeline.drained()
    # Then only the others have run
    assert sorted(names(pipeline)) == ["b", "c"]
    assert noted(pipeline, "shown")[0]["names"] == ["c", "a"]
    assert waiting(pipeline) == ["a"]
    assert {event["chat"] for event in noted(pipeline, "ran") if event["name"] == "b"} == {8}


def test_late_timers_run_in_the_order_of_their_times(make_pipeline: MakePipeline) -> None:
    # Given timers that are due while no worker runs
    pipeline = make_pipeline(BOT=BOT, TIMER_LATE="skip")
    worker = pipeline.worker("threads", 4)
    pipeline.poller()
    pipeline.push(message(1, chat=7, do=" ".join(f"later:t{n}_{1000 + 10 * (n * 7 % 20)}" for n in range(20))))
    pipeline.drained()
    worker.kill_all()
    until(lambda: len(waiting(pipeline)) == 20 and pipeline.redis.zcount(keys.TIMERS, 0, _now_ms(pipeline)) == 20)
    # When a worker starts
    pipeline.worker("threads", 4)
    until(lambda: len(names(pipeline)) == 20)
    # Then they run in the order of their times, and know how late they are
    assert names(pipeline) == [f"t{n}" for n in sorted(range(20), key=lambda n: n * 7 % 20)]
    late = [event["at"] - event["due"] - event["late_s"] for event in noted(pipeline, "timer")]
    assert all(-0.5 < each < 20 for each in late)


def test_late_timers_are_skipped(make_pipeline: MakePipeline) -> None:
    # Given timers that are late by more than TIMER_LATE_AFTER
    pipeline = make_pipeline(BOT=BOT, TIMER_LATE="skip", TIMER_LATE_AFTER=1, MAX_ATTEMPTS=1)
    first = pipeline.worker("threads", 4)
    pipeline.poller()
    pipeline.push(message(1, chat=7, do="later:a_500 later:b_500_fails_9"))
    pipeline.drained()
    until(lambda: "b" in names(pipeline, "timer"))
    pipeline.push(message(2, chat=7, do="later:c_500"))
    pipeline.drained()
    first.kill_all()
    until(lambda: pipeline.redis.zcount(keys.TIMERS, 0, _now_ms(pipeline) - 1000) == 1)
    # When a worker starts, Then they are settled without running
    worker = pipeline.worker("threads", 4)
    worker.tells("s late (TIMER_LATE=skip)")
    pipeline.drained()
    assert (pipeline.count("skipped"), names(pipeline)) == (1, ["a"])
    # But one that was buried runs when it is replayed
    [buried] = pipeline.dead()
    pipeline.command("lanes", "dead", "replay", buried)
    until(lambda: names(pipeline, "timer") == ["a", "b", "b"])


def test_a_timer_of_a_bot_without_on_timer_is_buried(make_pipeline: MakePipeline) -> None:
    # Given a timer, and a bot that has lost its on_timer
    pipeline = make_pipeline(BOT=BOT, RETRY_BACKOFF=0)
    worker = pipeline.worker("threads", 4)
    pipeline.poller()
    pipeline.push(message(1, chat=7, do="later:a_300"))
    pipeline.drained()
    worker.kill_all()
    without = pipeline.worker("threads", 4, BOT="tests.support.timer_bot:without_on_timer")
    until(pipeline.dead)
    # Then it is buried at once, and a handler cannot set one
    [buried] = pipeline.dead()
    [problem] = pipeline.problems(buried)
    assert problem["message"].startswith("the timer 'a' is due, but the bot has no on_timer: write Bot(…, on_timer=…)")
    [refused] = pipeline.push(message(2, chat=8, do="later:b_300"))
    until(lambda: pipeline.problems(f"{BOT_ID}:{refused}"))
    assert "this bot has no on_timer" in pipeline.problems(f"{BOT_ID}:{refused}")[0]["message"]
    # When the bot has it again, Then a replay runs it
    without.kill_all()
    pipeline.worker("threads", 4)
    pipeline.command("lanes", "dead", "replay", buried)
    until(lambda: "a" in names(pipeline))


def test_a_handler_of_a_broadcast_sets_timers_of_its_chats(make_pipeline: MakePipeline) -> None:
    # Given a broadcast to two chats, whose handler sets a timer, which sets another one
    pipeline = make_pipeline(BOT=BOT)
    pipeline.worker("threads", 4)
    feeder = Feeder(Store(pipeline.redis), Settings(bot_token=TOKEN))
    feeder.broadcasts.store("b1", Call(handler="tests.support.timer_bot:remind"), [7, 8], 100.0)
    feeder.start("b1")
    # Then they run in these chats
    until(lambda: len(names(pipeline)) == 4)
    ran = sorted((event["chat"], event["name"]) for event in noted(pipeline, "ran"))
    assert ran == [(7, "last"), (7, "reminder"), (8, "last"), (8, "reminder")]
    until(lambda: pipeline.session(7) == {"fired": ["reminder", "last"]})


GROUP, SUPERGROUP = -7, -1007


def in_group(number: int, do: str, chat: int = GROUP, **more: Any) -> dict[str, Any]:
    update = message(number, chat, user=5, do=do)
    update["message"] |= {"chat": {"id": chat, "type": "group" if chat == GROUP else "supergroup"}, **more}
    return update


def timers_in(pipeline: Pipeline, chat: int) -> list[str]:
    return [timer.name for timer in Store(pipeline.redis).timers(f"{BOT_ID}/chat:{chat}")]


def make_due(pipeline: Pipeline) -> None:
    pipeline.redis.zadd(keys.TIMERS, dict.fromkeys(pipeline.redis.zrange(keys.TIMERS, 0, -1), 1))


@pytest.mark.parametrize("order_by", ["chat", "chat+user"])
def test_timers_of_a_group_move_to_its_supergroup(make_pipeline: MakePipeline, order_by: str) -> None:
    # Given timers of a group
    pipeline = make_pipeline(BOT=BOT, ORDER_BY=order_by, QUEUES=2)
    pipeline.worker("threads", 4)
    pipeline.poller()
    pipeline.push(
        in_group(1, "later:a_60000 later:b_60000 later:c_60000 later:d_60000"), message(1, 8, do="later:a_60000")
    )
    pipeline.drained()
    # When it becomes a supergroup, and the handler of one of the messages about it changes some
    pipeline.push(in_group(2, "cancel:b later:c_70000 show:all", migrate_to_chat_id=SUPERGROUP))
    pipeline.drained()
    pipeline.push(in_group(3, "show:all", SUPERGROUP, migrate_from_chat_id=GROUP))
    pipeline.push(in_group(4, "cancel:d show:all", SUPERGROUP))
    pipeline.drained()
    # Then the handler sees them in both chats, and they belong to the new one
    assert [event["names"] for event in noted(pipeline, "shown")] == [["a", "d", "c"], ["a", "d", "c"], ["a", "c"]]
    assert (timers_in(pipeline, GROUP), timers_in(pipeline, SUPERGROUP)) == ([], ["a", "c"])
    # And each runs there, once
    make_due(pipeline)
    until(lambda: len(names(pipeline)) == 3)
    pipeline.drained()
    assert sorted((event["name"], event["chat"]) for event in noted(pipeline, "ran")) == [
        ("a", SUPERGROUP),
        ("a", 8),
        ("c", SUPERGROUP),
    ]
    sent = [call["params"]["chat_id"] for call in pipeline.simulator.calls("sendMessage")]
    assert sorted(sent) == [SUPERGROUP, SUPERGROUP, 8]


def test_a_timer_that_has_fired_when_its_group_becomes_a_supergroup_runs_in_the_new_chat(
    make_pipeline: MakePipeline,
) -> None:
    # Given a timer that waits in the lane of its group behind the message about its supergroup
    pipeline = make_pipeline(BOT=BOT, RETRY_BACKOFF=0)
    worker = pipeline.worker("threads", 4)
    pipeline.poller()
    pipeline.push(in_group(1, "later:a_500"), in_group(2, "gate:g"), in_group(3, "", migrate_to_chat_id=SUPERGROUP))
    until(lambda: pipeline.count("fired") == 1)
    pipeline.open("g")
    until(lambda: len(names(pipeline)) == 1)
    # And one that an update of the old chat sets later
    pipeline.push(in_group(4, "later:b_300"))
    until(lambda: len(names(pipeline)) == 2)
    pipeline.drained()
    # Then both run in the new chat, with the time at which they were due, and each once
    worker.tells("its group has become a supergroup, and it runs in the new chat")
    ran = [(event["name"], event["chat"]) for event in noted(pipeline, "timer")]
    assert ran == [("a", SUPERGROUP), ("b", SUPERGROUP)]
    assert pipeline.session(SUPERGROUP) == {"fired": ["a", "b"]}
    assert waiting(pipeline) == []


def _now_ms(pipeline: Pipeline) -> int:
    seconds, microseconds = pipeline.redis.time()
    return int(seconds) * 1000 + int(microseconds) // 1000
