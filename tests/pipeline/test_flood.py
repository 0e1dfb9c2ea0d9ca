"""A 429 that one worker receives: all workers observe it, nothing is sent twice, and no slot is occupied for long."""

from __future__ import annotations

from celery_lanes.monitoring import inspection
from celery_lanes.protocol import keys
from chatlanes.telegram.flood.keys import flood_counts
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import BOT_ID, Pipeline, message
from tests.support.waiting import until

#: Telegram's flood control response.
TOO_MANY = {"status": 429, "retry_after": 3}


def sent(pipeline: Pipeline, chat: int) -> list[str]:
    """The texts that were sent successfully, in order."""
    calls = pipeline.simulator.calls("sendMessage")
    return [call["params"]["text"] for call in calls if call["params"]["chat_id"] == chat and call["ok"]]


def test_a_paused_chat_is_paused_for_all_workers(make_pipeline: MakePipeline) -> None:
    # Given two workers, each with handlers that are about to send to chat 7
    pipeline = make_pipeline()
    workers = [pipeline.worker("threads", 6) for _ in range(2)]
    pipeline.poller()
    senders = pipeline.push(*(message(1, chat, do="gate:go sends:7") for chat in range(11, 19)))
    pipeline.started(*senders)
    assert {event.worker for event in pipeline.history} == {worker.name for worker in workers}
    # When one more call is refused there for 3 s, and then the others send
    pipeline.simulator.fault(chat_id=7, **TOO_MANY)
    [refused] = pipeline.push(message(1, 7))
    until(lambda: any("on every worker, chat 7 waits 3 s" in worker.log for worker in workers))
    pipeline.open("go")
    pipeline.ended(refused, *senders)
    # Then none of them sends before the 3 s are over
    to_7 = [call for call in pipeline.simulator.calls("sendMessage") if call["params"]["chat_id"] == 7]
    assert [call["ok"] for call in to_7] == [False] + [True] * 9
    assert to_7[1]["at"] - to_7[0]["at"] >= TOO_MANY["retry_after"]
    # And all waited in place: nothing was sent twice, and nothing ran twice
    pipeline.drained()
    assert sorted(sent(pipeline, 7)) == sorted(["#1", *(f"from {chat}" for chat in range(11, 19))])
    assert pipeline.simulator.answers() == {7: [1]} | {chat: [1] for chat in range(11, 19)}
    assert pipeline.count("parked") == 0
    pipeline.check_once_each()


def test_a_call_in_a_flood_wait_is_made_after_its_worker_dies(make_pipeline: MakePipeline) -> None:
    """The call is in the journal, but not uncertain: UNCERTAIN_CALL=skip does not apply to it."""
    # Given a handler whose second call waits in place, and a worker that is killed meanwhile
    pipeline = make_pipeline(UNCERTAIN_CALL="skip", FLOOD_WAIT=60, LEASE_SECONDS=2)
    pipeline.simulator.fault(method="sendChatAction", status=429, retry_after=50)
    pipeline.push(message(1, 7, do="says:hi chat_action:typing"))
    pipeline.poller()
    worker = pipeline.worker("threads", 2)
    until(lambda: "flood wait: chat 7 waits" in worker.log)
    worker.kill_all()
    # When the wait is over and another worker starts
    pipeline.redis.delete(f"flood:{BOT_ID}:7")
    pipeline.worker("threads", 2)
    pipeline.drained()
    # Then it makes that call, and repeats no other
    assert [call["ok"] for call in pipeline.simulator.calls("sendChatAction")] == [False, True]
    assert sent(pipeline, 7) == ["hi", "#1"]


def test_an_update_waits_while_telegram_refuses_the_token(make_pipeline: MakePipeline) -> None:
    # Given the second call of a handler, which is refused with 401, and a single attempt
    pipeline = make_pipeline(MAX_ATTEMPTS=1)
    pipeline.simulator.fault(method="sendChatAction", status=401)
    [refused] = pipeline.push(message(1, 7, do="says:hi chat_action:typing"))
    pipeline.push(message(2, 7))
    worker = pipeline.worker("threads", 4)
    pipeline.poller()
    until(lambda: pipeline.state_of(refused) == "delayed")
    assert "Telegram refuses the bot's token" in worker.log
    # When it is tried again
    pipeline.redis.zadd(keys.DELAYED, dict.fromkeys(pipeline.redis.zrange(keys.DELAYED, 0, -1), 1))
    # Then it is answered, in order, and nothing is sent twice
    pipeline.drained()
    assert sent(pipeline, 7) == ["hi", "#1", "#2"]
    assert not pipeline.dead()


def test_a_long_flood_wait_parks_the_update(make_pipeline: MakePipeline) -> None:
    # Given two chats where the second call of a handler is refused for an hour; one handler suppresses all errors
    pipeline = make_pipeline(BOT="tests.support.bots:bot")
    for chat in (7, 8):
        pipeline.simulator.fault(method="sendChatAction", chat_id=chat, status=429, retry_after=3600)
    careful, careless = pipeline.push(
        message(1, 7, do="says:hi chat_action:typing"), message(1, 8, do="says:hi tries_chat_action:typing")
    )
    pipeline.push(message(2, 7))
    worker = pipeline.worker("prefork", 1)
    pipeline.poller()
    until(lambda: [pipeline.state_of(each) for each in (careful, careless)] == ["delayed", "delayed"])
    # When another chat gets an update
    [other] = pipeline.push(message(1, 9))
    pipeline.ended(other)
    # Then the only slot is free for it, and in the two chats only the first call of each handler was made
    assert [sent(pipeline, chat) for chat in (7, 8, 9)] == [["hi"], ["hi"], ["#1"]]
    assert pipeline.count("parked") == 2
    [((kind, group), (times, together_s))] = inspection.parked(pipeline.redis).items()
    assert (kind, group, times, round(together_s / 3600)) == ("FloodWait", "updates", 2, 2)
    assert flood_counts(pipeline.redis, BOT_ID).refused == 2
    # When the hour is over
    for chat in (7, 8):
        assert pipeline.redis.delete(f"flood:{BOT_ID}:{chat}") == 1
    pipeline.redis.delete(f"flood:{BOT_ID}")
    pipeline.redis.zadd(keys.DELAYED, {f"{BOT_ID}:{each}": 0 for each in (careful, careless)})
    pipeline.drained()
    # Then they continue with the second call, in order, in their first attempt
    assert [sent(pipeline, chat) for chat in (7, 8, 9)] == [["hi", "#1", "#2"], ["hi", "#1"], ["#1"]]
    assert {event.attempt for event in pipeline.history} == {1}
    assert not [event for event in pipeline.history if event.what.startswith("error")]
    assert "FloodWait('flood wait: chat 7 waits 3600.0 s before sendChatAction')" in worker.log
    assert "Traceback" not in worker.log
    assert pipeline.leftovers() == []
    assert all(pipeline.redis.pttl(key) > 0 for key in pipeline.redis.scan_iter("flood[:-][!c]*"))
