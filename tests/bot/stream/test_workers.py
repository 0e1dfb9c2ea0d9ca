"""Streams in real workers: every pool, every framework, a flood of 429s, and a killed worker."""

from __future__ import annotations

import os
import time
from itertools import pairwise

import pytest

from celery_lanes.monitoring import inspection
from chatlanes.bot.stream.sender import GROUP_S, PRIVATE_S
from tests.bot.stream.bots.script import answer
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import BOT_ID, Pipeline, message
from tests.support.shown import shown
from tests.support.waiting import WITHIN_S, until

BOTS = {
    "plain": "tests.bot.stream.bots.plain:handle",
    "plain-drafts": "tests.bot.stream.bots.plain:handle_drafts",
    "plain-deleting": "tests.bot.stream.bots.plain:handle_deleting",
    "plain-async": "tests.bot.stream.bots.plain:handle_async",
    "telebot": "tests.bot.stream.bots.telebot:bot",
    "aiogram": "tests.bot.stream.bots.aiogram:dp",
    "ptb": "tests.bot.stream.bots.ptb:application",
}
STREAMS = 50
#: FLOOD_429="5-126": how long the 429s of a flood last, in seconds, instead of 1 to 4. That takes ten minutes.
SHORTEST_S, LONGEST_S = (int(limit) for limit in os.environ.get("FLOOD_429", "1-4").split("-"))
#: The longest FLOOD_WAIT. After a longer 429 the update is parked.
FLOOD_WAIT_S = 60
CELLS = [
    ("plain", "prefork", 4),
    ("plain", "threads", 8),
    ("plain", "gevent", 50),
    ("plain-async", "threads", 50),
    ("telebot", "threads", 8),
    ("telebot", "gevent", 50),
    ("aiogram", "threads", 50),
    ("ptb", "threads", 50),
]


def check_intervals(pipeline: Pipeline, chat: int) -> None:
    """A stream makes at most one request per interval."""
    methods = ("sendMessage", "editMessageText")
    made = [call for call in pipeline.simulator.calls() if call["params"].get("chat_id") == chat]
    times = [call["at"] for call in made if call["method"] in methods]
    interval_s = PRIVATE_S if chat > 0 else GROUP_S
    # The interval begins with the answer, later than the simulator receives the request.
    assert all(later - earlier >= interval_s * 0.99 for earlier, later in pairwise(times)), times


@pytest.mark.parametrize(("name", "pool", "slots"), CELLS, ids=[f"{name}-{pool}" for name, pool, _ in CELLS])
def test_every_framework_streams(make_pipeline: MakePipeline, name: str, pool: str, slots: int) -> None:
    pipeline = make_pipeline(BOT=BOTS[name])
    pipeline.poller()
    pipeline.worker(pool, slots)
    updates = {chat: message(1, chat, do="count:60 ms:25", user=None if chat > 0 else 5) for chat in (1, 2, -3)}
    pipeline.push(*updates.values())
    pipeline.drained()
    for chat in updates:
        assert shown(pipeline.simulator, chat) == {1: "".join(answer(60))}
        check_intervals(pipeline, chat)
    assert len(pipeline.simulator.calls("editMessageText")) >= len(updates)
    assert len(pipeline.simulator.calls("sendChatAction")) >= len(updates)
    assert pipeline.leftovers() == []


@pytest.mark.first_only
@pytest.mark.parametrize(("name", "pool"), [("plain", "gevent"), ("plain-async", "threads"), ("plain", "threads")])
def test_streams_during_a_flood(make_pipeline: MakePipeline, name: str, pool: str) -> None:
    # Given 50 streams at once, whose first texts and edits are refused for 1 to 4 s
    pipeline = make_pipeline(BOT=BOTS[name], FLOOD_WAIT=FLOOD_WAIT_S)
    chats = range(1, STREAMS + 1)
    for chat in chats:
        retry_after = SHORTEST_S + (chat - 1) * (LONGEST_S - SHORTEST_S) // (STREAMS - 1)
        for method in ("sendMessage", "editMessageText", "editMessageText"):
            pipeline.simulator.fault(chat_id=chat, method=method, status=429, retry_after=retry_after)
    pipeline.worker(pool, STREAMS)
    # When all of them run
    pipeline.push(*(message(1, chat, do="count:80 ms:50") for chat in chats))
    pipeline.poller()
    until(lambda: pipeline.count("settled") == STREAMS, WITHIN_S + 4 * LONGEST_S)
    pipeline.drained()
    # Then every text is there exactly, in one message, without more requests than allowed
    assert {chat: shown(pipeline.simulator, chat) for chat in chats} == {
        chat: {1: "".join(answer(80))} for chat in chats
    }
    for chat in chats:
        check_intervals(pipeline, chat)
    refused = [call for call in pipeline.simulator.calls() if not call["ok"]]
    assert len(refused) >= STREAMS
    # And no write waited
    writes = pipeline.directory / "writes"
    slow = [float(line) for line in writes.read_text().split()] if writes.exists() else []
    assert max(slow, default=0.0) < 1
    assert (pipeline.count("parked") > 0) == (LONGEST_S > FLOOD_WAIT_S)
    assert pipeline.leftovers() == []


def is_every_call_known(pipeline: Pipeline, update: int) -> bool:
    """False while the outcome of a call is not recorded: a later run would repeat it."""
    return all(state == "done" for _, state, _ in inspection.journal(pipeline.redis, f"{BOT_ID}:{update}"))


@pytest.mark.parametrize(("name", "pool"), [("plain", "prefork"), ("plain", "gevent"), ("plain-async", "threads")])
def test_a_stream_continues_after_its_worker_was_killed(make_pipeline: MakePipeline, name: str, pool: str) -> None:
    # Given a private chat and a group, whose messages grew before their worker is killed
    pipeline = make_pipeline(BOT=BOTS[name], LEASE_SECONDS=2)
    pipeline.poller()
    worker = pipeline.worker(pool, 2)
    updates = pipeline.push(message(1, 7, do="count:40 hold:20"), message(1, -8, user=5, do="count:900 ms:1 hold:800"))
    first = answer(900)
    until(lambda: shown(pipeline.simulator, 7) == {1: "".join(first[:20])})
    until(lambda: "".join(shown(pipeline.simulator, -8).values()) == "".join(first[:800]))
    until(lambda: all(is_every_call_known(pipeline, update) for update in updates))
    worker.kill_all()
    # When the updates run again, and the model says something else and, in the group, less
    pipeline.worker(pool, 2)
    pipeline.drained()
    # Then the same messages have the final text of the second run
    assert shown(pipeline.simulator, 7) == {1: "".join(answer(40, attempt=2))}
    assert "".join(shown(pipeline.simulator, -8).values()) == "".join(answer(900, attempt=2))
    assert len(pipeline.simulator.calls("sendMessage")) == 3
    assert pipeline.leftovers() == []


@pytest.mark.parametrize(("name", "pool"), [("plain", "prefork"), ("plain-async", "threads")])
def test_a_worker_that_dies_during_the_first_sending_leaves_its_text(
    make_pipeline: MakePipeline, name: str, pool: str
) -> None:
    """Telegram has no method that finds a message whose sending was not answered."""
    # Given a worker that is killed after Telegram has taken the first text, and before its answer
    pipeline = make_pipeline(BOT=BOTS[name], LEASE_SECONDS=2)
    pipeline.simulator.fault(method="sendMessage", takes_effect=True, slow_s=30)
    pipeline.poller()
    worker = pipeline.worker(pool, 2)
    pipeline.push(message(1, 7, do="count:40"))
    until(lambda: 1 in shown(pipeline.simulator, 7))
    worker.kill_all()
    # When the update runs again
    pipeline.worker(pool, 2)
    pipeline.drained()
    # Then its answer is there exactly, as a new message, beside the first text
    first, final = (shown(pipeline.simulator, 7)[number] for number in (1, 2))
    assert final == "".join(answer(40, attempt=2))
    assert "".join(answer(40)).startswith(first)
    assert len(first) < len(final)
    assert len(pipeline.simulator.calls("sendMessage")) == 2
    assert pipeline.leftovers() == []


def test_a_draft_leaves_nothing_when_its_worker_dies(make_pipeline: MakePipeline) -> None:
    # Given a worker that is killed while a draft is in flight
    pipeline = make_pipeline(BOT=BOTS["plain-drafts"], LEASE_SECONDS=2)
    pipeline.simulator.fault(method="sendMessageDraft", takes_effect=True, slow_s=30)
    pipeline.poller()
    worker = pipeline.worker("prefork", 2)
    pipeline.push(message(1, 7, do="count:40"))
    until(lambda: pipeline.simulator.calls("sendMessageDraft"))
    worker.kill_all()
    # When the update runs again, then its answer is the only message
    pipeline.worker("prefork", 2)
    pipeline.drained()
    assert shown(pipeline.simulator, 7) == {1: "".join(answer(40, attempt=2))}


def test_an_ephemeral_stream_continues_after_its_worker_was_killed(make_pipeline: MakePipeline) -> None:
    # Given an answer that only the member of a group sees, and whose worker is killed
    pipeline = make_pipeline(BOT=BOTS["plain"], LEASE_SECONDS=2)
    pipeline.poller()
    worker = pipeline.worker("prefork", 2)
    asked = message(0, -8, user=5, do="count:40 hold:20")["message"]
    [update] = pipeline.push(
        {"message": {**asked, "message_id": 0, "ephemeral_message_id": 9, "date": int(time.time())}}
    )
    until(lambda: pipeline.simulator.calls("editEphemeralMessageText"))
    until(lambda: is_every_call_known(pipeline, update))
    worker.kill_all()
    # When the update runs again
    pipeline.worker("prefork", 2)
    pipeline.drained()
    # Then the same message has the final text, and nothing was shown to the group
    made = pipeline.simulator.calls()
    [sent] = [call for call in made if call["method"] == "sendMessage"]
    assert sent["result"]["receiver_user"]["id"] == 5
    edits = [call["params"] for call in made if call["method"] == "editEphemeralMessageText"]
    assert edits[-1]["text"] == "".join(answer(40, attempt=2))
    assert {each["ephemeral_message_id"] for each in edits} == {sent["result"]["ephemeral_message_id"]}
    methods = {call["method"] for call in made if not call["method"].startswith("get")}
    assert methods == {"sendMessage", "editEphemeralMessageText"}
    assert pipeline.leftovers() == []


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_stream_interrupted_during_its_first_sending_is_deleted(make_pipeline: MakePipeline, pool: str) -> None:
    # Given a stream whose first text is in flight
    pipeline = make_pipeline(BOT=BOTS["plain-deleting"], COLLECT="messages", COLLECT_QUIET=0.1, INTERRUPT="on")
    pipeline.simulator.fault(method="sendMessage", takes_effect=True, slow_s=1)
    pipeline.poller()
    pipeline.worker(pool, 2)
    pipeline.push(message(1, 7, do="count:400"))
    until(lambda: 1 in shown(pipeline.simulator, 7))
    # When a newer message interrupts it
    pipeline.push(message(2, 7, do="count:30"))
    pipeline.drained()
    # Then the answer to both is the only message
    assert shown(pipeline.simulator, 7) == {2: "".join(answer(30))}
    assert pipeline.leftovers() == []
