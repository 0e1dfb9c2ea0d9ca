"""A broadcast reaches each recipient once, in the lanes of the chats, whatever dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from celery_lanes.embedded_server import start_server
from celery_lanes.protocol import Store
from chatlanes.broadcasts import BroadcastProgress, Broadcasts, Call, Feeder
from chatlanes.settings import Settings
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import BOT_ID, TOKEN, Pipeline, message
from tests.support.waiting import until

SAYS_HI = Call("sendMessage", {"text": "hi"})


class Broadcast:
    """One broadcast of the pipeline's bot."""

    id = "b1"

    def __init__(self, pipeline: Pipeline, chats: Iterable[int], call: Call = SAYS_HI, rate: float = 100.0) -> None:
        self.pipeline = pipeline
        self.chats = list(chats)
        self.feeder = Feeder(Store(pipeline.redis), Settings(bot_token=TOKEN))
        self.broadcasts: Broadcasts = self.feeder.broadcasts
        self.broadcasts.store(self.id, call, self.chats, rate)
        self.feeder.start(self.id)

    @property
    def now(self) -> BroadcastProgress:
        return self.broadcasts.progress(self.id)

    def reached(self) -> Counter[int]:
        """How many calls arrived for each chat, also those whose answer was lost."""
        calls = self.pipeline.simulator.calls("sendMessage")
        return Counter(call["params"]["chat_id"] for call in calls if call["ok"] and call["params"]["text"] == "hi")

    def ended(self, state: str = "done") -> BroadcastProgress:
        until(lambda: self.now.ended_ms > 0)
        assert self.now.state == state
        return self.now

    def some(self, count: int) -> None:
        until(lambda: self.now.done >= count)

    def check(self) -> None:
        """Each recipient got the message once, or is listed as uncertain."""
        missed = {chat: reason for chat, reason, _ in self.broadcasts.missed(self.id)}
        reached = self.reached()
        assert max(reached.values()) == 1
        assert {chat for chat in self.chats if reached[chat] == 0} <= set(missed)
        assert set(missed.values()) <= {"uncertain"}
        assert self.now.counts.get("uncertain", 0) == len(missed)
        assert self.now.counts["sent"] == len(self.chats) - len(missed)


def test_every_recipient_is_reached_and_refusals_are_listed(make_pipeline: MakePipeline) -> None:
    # Given a bot with a hook, and chats that refuse it for different reasons
    pipeline = make_pipeline(BOT="tests.support.bots:broadcasting")
    refusals = {
        11: (403, "Forbidden: bot was blocked by the user", "blocked"),
        12: (403, "Forbidden: user is deactivated", "deactivated"),
        13: (400, "Bad Request: chat not found", "never started"),
        14: (403, "Forbidden: bot can't initiate conversation with a user", "never started"),
        15: (400, "Bad Request: not enough rights to send text messages to the chat", "refused"),
        16: (502, "Bad Gateway", "uncertain"),
    }
    for chat, (status, description, _) in refusals.items():
        pipeline.simulator.fault(chat_id=chat, status=status, description=description)
    pipeline.worker("threads", 4)
    # When a broadcast runs
    broadcast = Broadcast(pipeline, range(10, 60))
    now = broadcast.ended()
    # Then the others got the message once, and these are listed
    assert broadcast.reached() == Counter(set(broadcast.chats) - set(refusals))
    missed = {chat: reason for chat, reason, _ in broadcast.broadcasts.missed("b1")}
    assert missed == {chat: reason for chat, (*_, reason) in refusals.items()}
    assert now.counts == {"sent": 44} | dict(Counter(missed.values()))
    # And the hook ran for those that blocked the bot, with their sessions
    assert [pipeline.session(chat) for chat in (10, 11, 12, 13)] == [None, {"gone": True}, {"gone": True}, None]
    # And nothing is left but the results
    until(lambda: pipeline.pending() == 0)
    assert pipeline.leftovers() == []
    kept = sorted(key.decode().partition(":")[0] for key in pipeline.redis.scan_iter("broadcast*"))
    assert kept == ["broadcast", "broadcast-call", "broadcast-missed", "broadcasts"]


def test_a_handler_is_run_with_each_context(make_pipeline: MakePipeline) -> None:
    # Given a function that fails in its first attempt for chat 101, and in each for chat 201
    pipeline = make_pipeline(MAX_ATTEMPTS=2, RETRY_BACKOFF=0)
    pipeline.worker("prefork", 2)
    # When it is run for these chats and another one
    broadcast = Broadcast(pipeline, [7, 101, 201], Call(handler="tests.support.bots:greet"))
    now = broadcast.ended()
    # Then its sessions are stored, it is tried again, and the last failure is listed instead of buried
    assert broadcast.reached() == {7: 1, 101: 1}
    assert [pipeline.session(chat) for chat in broadcast.chats] == [{"greeted": 1}, {"greeted": 1}, None]
    assert now.counts == {"sent": 2, "failed": 1}
    assert list(broadcast.broadcasts.missed("b1")) == [(201, "failed", "ValueError: chat 201")]
    assert pipeline.dead() == []


@pytest.mark.parametrize("end", ["fails", "killed"])
def test_a_handler_starts_a_broadcast_once(make_pipeline: MakePipeline, end: str) -> None:
    # Given chats with sessions, and a handler that starts a broadcast, and then fails or is killed once
    pipeline = make_pipeline(BOT="tests.support.bots:starting", RETRY_BACKOFF=0)
    pipeline.worker("prefork", 2)
    pipeline.poller()
    pipeline.ended(*pipeline.push(*(message(0, chat, do="counts:x") for chat in range(1, 21))))
    until(lambda: pipeline.session(20) is not None)
    # When it runs
    [update] = pipeline.push(message(1, 99, do=f"broadcasts:{end}"))
    pipeline.drained()
    # Then each of them has got the message once
    broadcasts = Broadcasts(pipeline.redis, BOT_ID)
    until(lambda: [each.ended_ms > 0 for each in broadcasts.all()] == [True])
    [now] = broadcasts.all()
    assert (now.id, now.counts) == (f"{update}-1", {"sent": 20})
    calls = pipeline.simulator.calls("sendMessage")
    assert sorted(call["params"]["chat_id"] for call in calls if call["params"]["text"] == "hi") == [*range(1, 21)]


def test_a_broadcast_without_recipients_ends_at_once(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT="tests.support.bots:starting", RETRY_BACKOFF=0)
    pipeline.worker("threads", 2)
    pipeline.poller()
    # When a handler starts a broadcast for all sessions, and no chat has one
    pipeline.push(message(1, 99, do="broadcasts:sessions"))
    # Then it has ended
    broadcasts = Broadcasts(pipeline.redis, BOT_ID)
    until(lambda: [each.ended_ms > 0 for each in broadcasts.all()] == [True])
    [now] = broadcasts.all()
    assert (now.state, now.total, now.counts, now.share) == ("done", 0, {}, 1.0)
    assert pipeline.dead() == []


def test_a_paused_broadcast_keeps_no_chat_waiting_and_resumes_with_the_rest(make_pipeline: MakePipeline) -> None:
    # Given a running broadcast
    pipeline = make_pipeline()
    pipeline.worker("threads", 4)
    pipeline.poller()
    broadcast = Broadcast(pipeline, range(1, 301))
    broadcast.some(30)
    # When it is paused
    assert broadcast.broadcasts.set_state("b1", "paused", only_from=("running",))
    until(lambda: pipeline.pending() == 0)
    paused = broadcast.now
    # Then every recipient that was fed has its result or is returned, and a chat answers at once
    assert paused.pending == 0
    assert paused.unfed == 300 - paused.done > 100
    pipeline.ended(*pipeline.push(*(message(1, chat) for chat in range(1, 20))))
    assert broadcast.now == paused
    # When it is resumed
    assert broadcast.feeder.resume("b1")
    # Then the others are reached, and nobody twice
    now = broadcast.ended()
    broadcast.check()
    assert (now.pending, now.unfed) == (0, 0)


def test_a_cancelled_broadcast_drops_the_rest(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()
    pipeline.worker("threads", 4)
    broadcast = Broadcast(pipeline, range(1, 301))
    broadcast.some(30)
    assert broadcast.feeder.cancel("b1")
    now = broadcast.ended("cancelled")
    assert now.counts["sent"] + now.counts["dropped"] == 300
    assert broadcast.reached().total() == now.counts["sent"] < 250
    assert not broadcast.feeder.cancel("b1")


def test_a_429_slows_a_broadcast_and_loses_nothing(make_pipeline: MakePipeline) -> None:
    # Given a bot that waits at most a moment in place
    pipeline = make_pipeline(FLOOD_WAIT=0)
    pipeline.worker("threads", 4)
    # When two chats are refused with 429, so that the whole bot pauses
    broadcast = Broadcast(pipeline, range(1, 201))
    for chat in (31, 32):
        pipeline.simulator.fault(chat_id=chat, status=429, retry_after=2)
    # Then their messages are parked, the rate is halved, and each recipient gets the message once
    broadcast.ended()
    broadcast.check()
    assert pipeline.count("parked") >= 2
    assert int(pipeline.redis.hget(f"broadcast:{BOT_ID}:b1", "slow") or 0) >= 1


@pytest.mark.parametrize("state", ["paused", "cancelled"])
def test_a_parked_run_that_has_made_a_call_is_run_to_its_end(make_pipeline: MakePipeline, state: str) -> None:
    # Given a handler whose first call was made, and whose second one was refused with 429
    pipeline = make_pipeline(FLOOD_WAIT=0)
    pipeline.worker("threads", 4)
    pipeline.simulator.fault(chat_id=31, method="sendChatAction", status=429, retry_after=3, times=1)
    broadcast = Broadcast(pipeline, [31], Call(handler="tests.support.bots:greet_and_type"))
    until(lambda: pipeline.count("parked"))
    # When the broadcast is stopped
    assert broadcast.broadcasts.set_state("b1", state, only_from=("running",))
    until(lambda: broadcast.now.pending == 0)
    # Then the chat has both calls, once, and counts as reached
    assert broadcast.now.counts == {"sent": 1}
    assert [call["method"] for call in pipeline.simulator.calls() if call["ok"]] == [
        "sendMessage",
        "sendChatAction",
    ]


@pytest.mark.parametrize("state", ["paused", "cancelled"])
def test_a_retry_is_run_to_its_end_only_if_it_has_made_a_call(make_pipeline: MakePipeline, state: str) -> None:
    # Given a handler whose first attempt failed, in chat 7 after its call, and in chat 101 before it
    pipeline = make_pipeline(RETRY_BACKOFF=2)
    pipeline.worker("threads", 4)
    broadcast = Broadcast(pipeline, [7, 101], Call(handler="tests.support.bots:greet_at_second"))
    until(lambda: all(pipeline.problems(f"{BOT_ID}:broadcast:b1:{number}") for number in (0, 1)))
    # When the broadcast is stopped
    assert broadcast.broadcasts.set_state("b1", state, only_from=("running",))
    # Then only chat 7 has its message
    if state == "cancelled":
        assert broadcast.ended("cancelled").counts == {"sent": 1, "dropped": 1}
        assert broadcast.reached() == {7: 1}
        return
    until(lambda: broadcast.now.pending == 0)
    assert (broadcast.now.counts, broadcast.now.unfed) == ({"sent": 1}, 1)
    assert broadcast.reached() == {7: 1}
    # And chat 101 gets it when the broadcast is resumed
    assert broadcast.feeder.resume("b1")
    assert broadcast.ended().counts == {"sent": 2}
    assert broadcast.reached() == {7: 1, 101: 1}


def test_a_replayed_recipient_has_only_its_new_result(make_pipeline: MakePipeline) -> None:
    # Given a broadcast that has ended with three recipients whose processes died
    pipeline = make_pipeline(MAX_ATTEMPTS=1)
    pipeline.worker("prefork", 2)
    broadcast = Broadcast(pipeline, [7, 101, 102, 103], Call(handler="tests.support.bots:greet_or_die"))
    assert broadcast.ended().counts == {"sent": 1, "failed": 3}
    assert {chat: reason for chat, reason, _ in broadcast.broadcasts.missed("b1")} == dict.fromkeys(
        (101, 102, 103), "failed"
    )
    # When two are replayed, one of which has blocked the bot
    pipeline.simulator.fault(chat_id=102, status=403, description="Forbidden: bot was blocked by the user")
    pipeline.open("gate")
    for number in (1, 2):
        replay = pipeline.command("lanes", "dead", "replay", f"{BOT_ID}:broadcast:b1:{number}")
        assert replay.exit_code() == 0, replay.log
    until(lambda: pipeline.pending() == 0)
    # Then their new results have replaced the old ones
    assert broadcast.reached() == {7: 1, 101: 1}
    assert broadcast.now.counts == {"sent": 2, "failed": 1, "blocked": 1}
    missed = [(chat, reason) for chat, reason, _ in broadcast.broadcasts.missed("b1")]
    assert missed == [(102, "blocked"), (103, "failed")]


def test_a_call_in_flight_at_a_kill_is_uncertain(make_pipeline: MakePipeline) -> None:
    # Given a worker, and calls for 5 and 6 that take long; the one for 5 takes effect
    pipeline = make_pipeline(LEASE_SECONDS=2)
    pipeline.simulator.fault(chat_id=5, hang_s=60)
    pipeline.simulator.fault(chat_id=6, hang_s=60, takes_effect=True, reset=True)
    victim = pipeline.worker("threads", 8)
    broadcast = Broadcast(pipeline, range(1, 101))
    broadcast.some(98)
    # When it is killed during these calls
    victim.kill_all()
    # Then the next worker does not make them again, and lists them
    pipeline.worker("threads", 4)
    broadcast.ended()
    broadcast.check()
    assert {chat for chat, *_ in broadcast.broadcasts.missed("b1")} == {5, 6}


def test_killed_workers_and_a_killed_redis_repeat_and_lose_nothing(make_pipeline: MakePipeline, tmp_path: Path) -> None:
    # Given two workers in the middle of a broadcast
    redis = start_server(tmp_path / "redis")
    pipeline = make_pipeline(redis_url=redis.url, LEASE_SECONDS=2)
    victim, survivor = pipeline.worker("prefork", 2), pipeline.worker("threads", 4)
    broadcast = Broadcast(pipeline, range(1, 601))
    # When one is killed, and then Redis
    broadcast.some(100)
    victim.kill_all()
    broadcast.some(300)
    redis.kill()
    survivor.tells("lanes: Redis does not answer the lease renewal")
    with start_server(tmp_path / "redis", port=redis.port):
        # Then each recipient is reached once, or listed as uncertain
        broadcast.ended()
        broadcast.check()
        until(lambda: pipeline.pending() == 0)
        assert pipeline.leftovers() == []


def test_the_command_starts_and_shows_a_broadcast(make_pipeline: MakePipeline, tmp_path: Path) -> None:
    # Given files with the text and the recipients, one of them twice
    pipeline = make_pipeline()
    (tmp_path / "chats.txt").write_text("# customers\n" + "".join(f"{chat}\n" for chat in [*range(1, 41), 7]))
    (tmp_path / "text.html").write_text("<b>hi</b>\n")
    pipeline.simulator.fault(chat_id=9, status=403, description="Forbidden: bot was blocked by the user")
    # When the command starts a broadcast, and is killed while it shows the progress
    arguments = ["--to", "chats.txt", "--method", "sendMessage", "--text-file", "text.html", "--parse-mode", "HTML"]
    start = pipeline.command(
        "lanes", "broadcast", "start", *arguments, "--param", "disable_notification=true", "--watch"
    )
    until(lambda: "running" in start.log or "stored" in start.log)
    start.kill_all()
    id_ = start.log.split()[0]
    pipeline.worker("threads", 4)
    # Then the workers continue it
    status = pipeline.command("lanes", "broadcast", "status", id_, "--watch")
    assert status.exit_code() == 0
    for line in ("100.0%  40 of 40", "39  sent", "1  blocked"):
        assert line in status.log
    report = pipeline.command("lanes", "broadcast", "report", id_, "--csv")
    report.exit_code()
    assert report.log.splitlines() == ["chat_id,reason,description", "9,blocked,"]
    params = [call["params"] for call in pipeline.simulator.calls("sendMessage") if call["ok"]]
    assert len(params) == 39
    assert {key: params[0][key] for key in ("text", "parse_mode", "disable_notification")} == {
        "text": "<b>hi</b>",
        "parse_mode": "HTML",
        "disable_notification": True,
    }


def test_the_command_refuses_what_cannot_work(make_pipeline: MakePipeline, tmp_path: Path) -> None:
    pipeline = make_pipeline()
    (tmp_path / "chats.txt").write_text("7\n@ann\n")
    says_hi = ["--method", "sendMessage", "--param", "text=hi"]
    for arguments, sentence in {
        ("--to", "chats.txt", *says_hi): "chats.txt: line 2 is '@ann': write one chat id",
        ("--sessions", *says_hi): "no chat has a session",
        ("--sessions", *says_hi, "--rate", "100"): "a rate of 100 per second must be paid",
        ("--sessions", "--handler", "tests.support.bots:nothing"): "tests.support.bots has no nothing",
        ("--sessions", "--method", "sendMessage"): "sendMessage has no text",
        (
            "--sessions",
            *says_hi,
            "--param",
            "chat_id=9",
        ): "chat_id=9: leave it out; each chat gets the call with its own",
        ("--sessions", "--method", "send message"): "send message is not a method of the Bot API",
        ("--sessions", *says_hi, "--handler", "tests.support.bots:greet"): "choose the action for each chat",
    }.items():
        refused = pipeline.command("lanes", "broadcast", "start", *arguments)
        assert refused.exit_code() in (1, 2)
        assert sentence in refused.log
    unknown = pipeline.command("lanes", "broadcast", "pause", "b9")
    assert unknown.exit_code() == 1
    assert "there is no broadcast b9 of this bot" in unknown.log
    assert list(pipeline.redis.scan_iter("broadcast*")) == []


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("call", "why"),
    [
        (SAYS_HI, "Telegram refused the first "),
        (Call(handler="tests.support.bots:nothing"), "the first "),
    ],
    ids=["refused", "handler"],
)
def test_a_broadcast_that_reaches_nobody_pauses_and_can_be_resumed(
    make_pipeline: MakePipeline, call: Call, why: str
) -> None:
    # Given a call that is refused for each chat, or a function that does not exist
    pipeline = make_pipeline(MAX_ATTEMPTS=1)
    for chat in range(1, 201):
        pipeline.simulator.fault(chat_id=chat, status=400, description="Bad Request: can't parse entities")
    pipeline.worker("threads", 4)
    # When a broadcast has missed some recipients
    broadcast = Broadcast(pipeline, range(1, 201), call)
    until(lambda: broadcast.now.state == "paused" and broadcast.now.pending == 0)
    # Then it pauses, and says why
    first = broadcast.now
    assert first.why.startswith(why)
    assert 20 <= first.done < 190
    # When it is resumed
    assert broadcast.feeder.resume("b1")
    # Then it tries as many again
    until(lambda: broadcast.now.state != "running" and broadcast.now.pending == 0)
    assert broadcast.now.done >= first.done + 20
