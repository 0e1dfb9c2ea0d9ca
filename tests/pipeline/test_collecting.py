"""COLLECT: updates that belong together are handed over as one run, in order with all others."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import BOT_ID, Pipeline, message
from tests.support.waiting import until

BOT = "tests.support.talking_bot:bot"
#: No group becomes ready because of the time.
LONG = {"COLLECT_QUIET": 60, "COLLECT_MAX_WAIT": 300}


def collecting(make_pipeline: MakePipeline, **settings: object) -> Pipeline:
    return make_pipeline(**{"BOT": BOT, "COLLECT": "messages", "COLLECT_QUIET": 0.3, "LEASE_SECONDS": 3, **settings})


def album(size: int, chat: int, name: str = "1") -> list[dict[str, Any]]:
    parts = [message(0, chat) for _ in range(size)]
    for part in parts:
        del part["message"]["text"]
        part["message"].update(media_group_id=name, photo=[photo_size(90), photo_size(1280)])
    parts[0]["message"]["caption"] = "look"
    return parts


def photo_size(width: int) -> dict[str, Any]:
    return {"file_id": f"F{width}", "file_unique_id": f"U{width}", "width": width, "height": width}


def texts(*written: str, chat: int = 7, user: int | None = None) -> list[dict[str, Any]]:
    return [message(0, chat, user, do=text) for text in written]


def said(pipeline: Pipeline) -> list[str]:
    return [call["params"]["text"].removesuffix(", 0 photos") for call in pipeline.simulator.calls("sendMessage")]


def answers(pipeline: Pipeline) -> list[str]:
    return [text for text in said(pipeline) if text != "one moment"]


def joined(ids: list[int], *texts: str) -> str:
    return f"{','.join(map(str, ids))}: " + "\n".join(texts)


def test_an_album_is_one_run_in_every_pool(make_pipeline: MakePipeline, pool: tuple[str, int]) -> None:
    pipeline = collecting(make_pipeline, COLLECT="albums")
    pipeline.poller()
    pipeline.worker(*pool)
    # When two albums arrive one after the other, and a message after them
    first, second = pipeline.push(*album(10, 7)), pipeline.push(*album(2, 7, "2"))
    [last] = pipeline.push(*texts("thanks"))
    pipeline.drained()
    # Then each album is one run
    assert answers(pipeline) == [
        f"{joined(first, 'look')}, 10 photos",
        f"{joined(second, 'look')}, 2 photos",
        joined([last], "thanks"),
    ]
    assert pipeline.leftovers() == []


def test_quick_messages_are_one_run_and_a_command_is_its_own(make_pipeline: MakePipeline) -> None:
    pipeline = collecting(make_pipeline, **LONG)
    # Given messages before and after a command and after another sender, in one group
    ids = pipeline.push(
        *texts("a", "b", "c", "/now", "d", "e", chat=-1, user=5),
        *texts("f", chat=-1, user=6),
        *texts("/end", chat=-1, user=5),
    )
    pipeline.poller()
    pipeline.worker("threads", 4)
    pipeline.drained()
    # Then what does not belong to a group ends it, without waiting, and order holds
    assert answers(pipeline) == [
        joined(ids[:3], "a", "b", "c"),
        joined(ids[3:4], "/now"),
        joined(ids[4:6], "d", "e"),
        joined(ids[6:7], "f"),
        joined(ids[7:], "/end"),
    ]


def test_an_ephemeral_message_is_a_run_of_its_own_with_an_ephemeral_answer(make_pipeline: MakePipeline) -> None:
    # Given a member of a group who writes two messages, and between them one that only the bot sees
    pipeline = collecting(make_pipeline)
    first, secret, last = texts("one", "my salary", "two", chat=-7, user=5)
    secret["message"].update(message_id=0, ephemeral_message_id=3, date=int(time.time()))
    pipeline.push(first, secret, last)
    pipeline.poller()
    pipeline.worker("threads", 2)
    pipeline.drained()
    # Then its answer has only this message, and this receiver
    assert [text.partition(": ")[2] for text in said(pipeline)] == ["one", "my salary", "two"]
    receivers = [call["params"].get("ephemeral_message_parameters") for call in pipeline.simulator.calls("sendMessage")]
    assert receivers == [None, {"receiver_user_id": 5}, None]


def test_a_group_ends_when_it_is_full(make_pipeline: MakePipeline) -> None:
    pipeline = collecting(make_pipeline, **LONG, COLLECT_MAX=3)
    ids = pipeline.push(*texts("a", "b", "c", "d", "e", "f"))
    pipeline.poller()
    pipeline.worker("threads", 4)
    pipeline.drained()
    assert answers(pipeline) == [joined(ids[:3], "a", "b", "c"), joined(ids[3:], "d", "e", "f")]


def test_a_group_waits_for_max_wait_at_most(make_pipeline: MakePipeline) -> None:
    pipeline = collecting(make_pipeline, COLLECT_QUIET=60, COLLECT_MAX_WAIT=1)
    pipeline.poller()
    pipeline.worker("threads", 4)
    ids = pipeline.push(*texts("a", "b"))
    pipeline.drained()
    assert answers(pipeline) == [joined(ids, "a", "b")]


def test_a_payment_is_not_held(make_pipeline: MakePipeline) -> None:
    pipeline = collecting(make_pipeline, **LONG)
    pipeline.poller()
    pipeline.worker("threads", 4)
    ann = {"id": 7, "is_bot": False, "first_name": "Ann"}
    query = {"id": "1", "from": ann, "currency": "XTR", "total_amount": 1, "invoice_payload": "p"}
    paid = message(0, 7)["message"] | {"successful_payment": {"currency": "XTR"}}
    del paid["text"]
    # When a group is open, and a payment of its chat arrives
    first = pipeline.push(*texts("I will pay", "now"))
    query_id, paid_id = pipeline.simulator.push({"pre_checkout_query": query}, {"message": paid})
    # Then the group is run at once, and the payment after it
    pipeline.drained()
    assert answers(pipeline) == [
        joined(first, "I will pay", "now"),
        f"{query_id}: pre_checkout_query",
        f"{paid_id}: message",
    ]


def test_what_arrives_during_a_run_is_collected_for_the_next(make_pipeline: MakePipeline) -> None:
    pipeline = collecting(make_pipeline)
    pipeline.poller()
    pipeline.worker("threads", 4)
    first = pipeline.push(*texts("gate:a"))
    until(lambda: (pipeline.directory / "a.reached").exists())
    later = pipeline.push(*texts("b")) + pipeline.push(*texts("c"))
    until(lambda: pipeline.simulator.stats()["confirmed"] == 3)
    pipeline.open("a")
    pipeline.drained()
    assert answers(pipeline) == [joined(first, "gate:a"), joined(later, "b", "c")]


def test_only_updates_with_the_same_keys_are_one_group(make_pipeline: MakePipeline) -> None:
    # Given a user who writes in two groups in turn
    pipeline = collecting(make_pipeline, ORDER_BY="chat+user", **LONG)
    ids = pipeline.push(
        *texts("a", "b", chat=-1, user=5), *texts("c", chat=-2, user=5), *texts("d", "/end", chat=-1, user=5)
    )
    pipeline.poller()
    pipeline.worker("threads", 4)
    pipeline.drained()
    # Then the messages are in the order of the user
    assert answers(pipeline) == [
        joined(ids[:2], "a", "b"),
        joined(ids[2:3], "c"),
        joined(ids[3:4], "d"),
        joined(ids[4:], "/end"),
    ]


def test_a_function_chooses_the_groups(make_pipeline: MakePipeline) -> None:
    pipeline = collecting(make_pipeline, COLLECT="tests.support.talking_bot:by_name", **LONG)
    ids = pipeline.push(*texts("name:x 1", "name:x 2", "3", "name:y 4", "5"))
    pipeline.poller()
    pipeline.worker("threads", 4)
    pipeline.drained()
    assert answers(pipeline) == [
        joined(ids[:2], "name:x 1", "name:x 2"),
        joined(ids[2:3], "3"),
        joined(ids[3:4], "name:y 4"),
        joined(ids[4:], "5"),
    ]


def test_a_rerun_gets_the_same_group(make_pipeline: MakePipeline) -> None:
    pipeline = collecting(make_pipeline, RETRY_BACKOFF=1)
    pipeline.poller()
    pipeline.worker("threads", 4)
    # Given a group whose first attempt fails
    first = pipeline.push(*texts("fails:1", "b"))
    until(lambda: pipeline.state_of(first[0]) == "delayed")
    # When another update arrives before its second attempt
    later = pipeline.push(*texts("c"))
    pipeline.drained()
    # Then it is not in the group
    assert answers(pipeline) == [joined(first, "fails:1", "b"), joined(later, "c")]


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_group_of_a_killed_worker_runs_again(make_pipeline: MakePipeline, pool: str) -> None:
    pipeline = collecting(make_pipeline)
    pipeline.poller()
    killed = pipeline.worker(pool, 2)
    first = pipeline.push(*texts("gate:a", "b"))
    until(lambda: (pipeline.directory / "a.reached").exists())
    later = pipeline.push(*texts("c"))
    killed.kill_all()
    pipeline.open("a")
    pipeline.worker(pool, 2)
    pipeline.drained()
    assert answers(pipeline) == [joined(first, "gate:a", "b"), joined(later, "c")]


def test_a_buried_group_is_one_dead_letter_and_is_replayed_as_one(make_pipeline: MakePipeline) -> None:
    pipeline = collecting(make_pipeline, MAX_ATTEMPTS=1)
    pipeline.poller()
    pipeline.worker("threads", 4)
    first = pipeline.push(*texts("fails:1", "b"))
    pipeline.drained()
    assert pipeline.dead() == [f"{BOT_ID}:{first[0]}"]
    # A replay begins again at the first attempt, so it fails again, with the same updates
    pipeline.command("lanes", "dead", "replay", f"{BOT_ID}:{first[0]}").exit_code()
    until(lambda: len(pipeline.happened("start")) == 2)
    pipeline.drained()
    assert pipeline.happened("start") == [first[1]] * 2
    assert pipeline.dead() == [f"{BOT_ID}:{first[0]}"]
