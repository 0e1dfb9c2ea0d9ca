"""A call of the outbox is made once, in its place in the lane of its chat, whatever dies."""

from __future__ import annotations

import sys

import pytest

from chatlanes.outbox import Outbox, Sent, call_of
from chatlanes.settings import load
from chatlanes.telegram.errors import BadRequest, BlockedByUser, ChatMigrated
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import CELERY, Pipeline, message
from tests.support.process import Process
from tests.support.waiting import until

SENDER = """
import sys
import chatlanes
print("id", chatlanes.send(int(sys.argv[1]), "sendMessage", once=sys.argv[2], text=sys.argv[3]), flush=True)
"""


class Sender:
    """A process that only sends."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.outbox = Outbox(load({name: str(value) for name, value in pipeline.settings.items()}, env_file=None))

    def send(self, chat: int, text: str, once: str | None = None) -> str:
        call = call_of(self.outbox.settings, chat, "sendMessage", once, {"text": text})
        self.outbox.append(call)
        return call.id

    def start(self, chat: int, text: str, once: str) -> Process:
        """Another process that sends one call."""
        return self.pipeline._start("sender", [sys.executable, "-c", SENDER, str(chat), once, text], {})

    def ended(self, id_: str, state: str = "sent") -> Sent:
        until(lambda: self.outbox.sent(id_).state != "waiting")
        found = self.outbox.sent(id_)
        assert found.state == state, found
        return found

    def texts(self, chat: int) -> list[str]:
        """The messages that have reached the chat, also if the answer was lost."""
        calls = self.pipeline.simulator.calls("sendMessage")
        return [call["params"]["text"] for call in calls if call["ok"] and call["params"]["chat_id"] == chat]


def test_a_call_is_made_and_its_result_kept(make_pipeline: MakePipeline, pool: tuple[str, int]) -> None:
    # Given a worker of each pool
    pipeline = make_pipeline()
    pipeline.worker(*pool)
    sender = Sender(pipeline)
    # When other processes send two calls, of which one is refused
    pipeline.simulator.fault(chat_id=8, status=400, description="Bad Request: chat not found")
    ids = [sender.send(7, "hi"), sender.send(8, "hi")]
    # Then both have ended, and nothing else is left of them
    assert sender.ended(ids[0]).result["text"] == "hi"
    refused = sender.ended(ids[1], "refused")
    assert (type(refused.error), refused.why) == (BadRequest, "Bad Request: chat not found")
    assert sender.texts(7) == ["hi"]
    assert pipeline.leftovers() == []
    kept = sorted(pipeline.redis.scan_iter("sent:*")) + sorted(pipeline.redis.scan_iter("sending:*"))
    assert [key.decode() for key in kept] == sorted(f"sent:{id_}" for id_ in ids)


def test_a_bot_of_coroutines_makes_calls(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT="tests.support.bots:coroutines")
    pipeline.worker("threads", 2)
    sender = Sender(pipeline)
    sender.ended(sender.send(7, "hi"))
    assert sender.texts(7) == ["hi"]


def test_refusals_have_the_error_of_a_handler_and_the_hook(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT="tests.support.bots:broadcasting")
    pipeline.worker("threads", 4)
    sender = Sender(pipeline)
    pipeline.simulator.fault(chat_id=11, status=403, description="Forbidden: bot was blocked by the user")
    pipeline.simulator.fault(
        chat_id=-12,
        body='{"ok":false,"error_code":400,"description":"Bad Request: group chat was upgraded to a supergroup chat",'
        '"parameters":{"migrate_to_chat_id":-100}}',
        status=400,
    )
    blocked, migrated = sender.send(11, "hi"), sender.send(-12, "hi")
    assert isinstance(sender.ended(blocked, "refused").error, BlockedByUser)
    until(lambda: pipeline.session(11) == {"gone": True})
    error = sender.ended(migrated, "refused").error
    assert isinstance(error, ChatMigrated)
    assert error.migrate_to_chat_id == -100


def test_a_call_keeps_its_place_among_the_updates_of_its_chat(make_pipeline: MakePipeline) -> None:
    # Given an update whose handler runs
    pipeline = make_pipeline()
    pipeline.worker("threads", 8)
    pipeline.poller()
    sender = Sender(pipeline)
    [first] = pipeline.push(message(1, 7, do="gate:a"))
    pipeline.started(first)
    # When a call is sent, then an update and another call
    ids = [sender.send(7, "one")]
    [second] = pipeline.push(message(2, 7))
    until(lambda: pipeline.pending() == 3)
    ids.append(sender.send(7, "two"))
    # And a call for another chat
    sender.ended(sender.send(8, "other"))
    # Then that one was made at once, and these wait
    assert [sender.outbox.sent(id_).state for id_ in ids] == ["waiting", "waiting"]
    assert sender.texts(7) == []
    # Until the handler ends; and they are made in their order
    pipeline.open("a")
    for id_ in ids:
        sender.ended(id_)
    pipeline.ended(second)
    assert sender.texts(7) == ["#1", "one", "#2", "two"]


def test_a_control_update_does_not_stop_a_call(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(LEASE_SECONDS=3)
    pipeline.worker("threads", 4)
    pipeline.poller()
    sender = Sender(pipeline)
    pipeline.simulator.fault(chat_id=7, hang_s=3, takes_effect=True)
    id_ = sender.send(7, "hi")
    until(lambda: pipeline.simulator.calls("sendMessage"))
    pipeline.ended(*pipeline.push(message(1, 7, do="/stop")))
    sender.ended(id_)
    assert pipeline.count("stopped") == 0


def test_a_429_delays_a_call_and_loses_nothing(make_pipeline: MakePipeline) -> None:
    # Given a bot that does not wait in place
    pipeline = make_pipeline(FLOOD_WAIT=0)
    pipeline.worker("threads", 4)
    sender = Sender(pipeline)
    pipeline.simulator.fault(chat_id=7, status=429, retry_after=2)
    # When a call is refused with 429
    ids = [sender.send(7, "one"), sender.send(7, "two")]
    # Then it is parked, and made once, before the next one of its chat
    for id_ in ids:
        sender.ended(id_)
    assert sender.texts(7) == ["one", "two"]
    assert pipeline.count("parked") >= 1
    assert pipeline.dead() == []


@pytest.mark.parametrize(
    ("uncertain", "places", "state"), [("repeat", ["1", "1 again"], "sent"), ("skip", ["1"], "uncertain")]
)
def test_a_call_in_flight_at_a_kill_follows_the_setting(
    make_pipeline: MakePipeline, uncertain: str, places: list[str], state: str
) -> None:
    # Given a worker, and a call whose answer takes long
    pipeline = make_pipeline(LEASE_SECONDS=2, UNCERTAIN_CALL=uncertain)
    pipeline.simulator.fault(chat_id=7, hang_s=120)
    victim, sender = pipeline.worker("threads", 4), Sender(pipeline)
    ids = [sender.send(7, "one", once="a"), sender.send(7, "two")]
    until(lambda: pipeline.simulator.calls("sendMessage"))
    # When the worker is killed during the call, and the key is sent again
    victim.kill_all()
    assert sender.send(7, "one", once="a") == ids[0]
    # Then the next worker repeats it, or says that it may have been made, before it makes the next one
    pipeline.worker("threads", 4)
    found = sender.ended(ids[0], state)
    assert found.why == ("a worker died during the call" if state == "uncertain" else "")
    sender.ended(ids[1])
    calls = pipeline.simulator.calls("sendMessage")
    assert [call["params"]["text"] for call in calls] == ["one"] * len(places) + ["two"]
    assert [call["place"] for call in calls] == [*places, "1"]
    assert pipeline.leftovers() == []


@pytest.mark.parametrize(("uncertain", "state", "calls"), [("repeat", "sent", 2), ("skip", "uncertain", 1)])
def test_a_lost_answer_follows_the_setting(make_pipeline: MakePipeline, uncertain: str, state: str, calls: int) -> None:
    pipeline = make_pipeline(UNCERTAIN_CALL=uncertain, RETRY_BACKOFF=0)
    pipeline.worker("threads", 4)
    pipeline.simulator.fault(chat_id=7, takes_effect=True, reset=True)
    sender = Sender(pipeline)
    sender.ended(sender.send(7, "hi"), state)
    assert sender.texts(7) == ["hi"] * calls


def test_a_call_that_cannot_be_made_is_buried_and_replayed(make_pipeline: MakePipeline) -> None:
    # Given a Bot API that has a failure for longer than the attempts last
    pipeline = make_pipeline(MAX_ATTEMPTS=2, RETRY_BACKOFF=0)
    pipeline.worker("threads", 4)
    sender = Sender(pipeline)
    pipeline.simulator.fault(chat_id=7, status=502, times=2)
    id_ = sender.send(7, "hi")
    # Then the call is a dead letter, which its sender sees
    found = sender.ended(id_, "buried")
    assert found.why.startswith("ServerError: sendMessage to chat 7")
    assert pipeline.dead() == [id_]
    # When it is replayed
    pipeline._start("command", [*CELERY, "lanes", "dead", "replay", id_], {}).tells("replayed")
    # Then it is made
    sender.ended(id_)
    assert sender.texts(7) == ["hi"]


def test_two_processes_with_one_key_send_once(make_pipeline: MakePipeline) -> None:
    # Given a worker, and processes that send the same key at the same time
    pipeline = make_pipeline()
    pipeline.worker("threads", 4)
    sender = Sender(pipeline)
    senders = [sender.start(7, "hi", "a") for _ in range(3)]
    for each in senders:
        each.tells("id ")
    ids = {each.log.split()[-1] for each in senders}
    # Then all have the id of one call, which is made once
    assert len(ids) == 1
    sender.ended(ids.pop())
    assert sender.send(7, "hi", once="a") == senders[0].log.split()[-1]
    assert sender.texts(7) == ["hi"]


def test_workers_that_are_killed_again_and_again_lose_no_call(make_pipeline: MakePipeline) -> None:
    # Given calls for many chats, three for each, and a worker that is killed while it makes them
    pipeline = make_pipeline(LEASE_SECONDS=2)
    sender = Sender(pipeline)
    ids = [sender.send(chat, f"{n}", once=f"{n}") for n in range(3) for chat in range(1, 41)]
    for n in (20, 60):
        victim = pipeline.worker("prefork", 2)
        until(lambda n=n: len(pipeline.simulator.calls("sendMessage")) >= n)  # type: ignore[misc]
        victim.kill_all()
        assert [sender.send(chat, "0", once="0") for chat in range(1, 41)] == ids[:40]
    pipeline.worker("threads", 8)
    # Then each chat gets its calls in order; only one that was in flight at a kill may be repeated
    for id_ in ids:
        sender.ended(id_)
    repeated = 0
    for chat in range(1, 41):
        texts = sender.texts(chat)
        assert list(dict.fromkeys(texts)) == ["0", "1", "2"]
        assert texts == sorted(texts)
        repeated += len(texts) - 3
    assert repeated <= 2 * 2  # two kills, two slots
    assert pipeline.leftovers() == []
