"""Chats are distributed over queues, and a worker may consume only some of them."""

from __future__ import annotations

from chatlanes.updates.routing import keys_of, queue_of
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.monitoring.test_command import command_output
from tests.support.pipeline import Pipeline, conversations, message
from tests.support.waiting import until


def test_a_worker_takes_only_the_queues_it_is_given(make_pipeline: MakePipeline) -> None:
    # Given the updates of 40 chats in four queues
    pipeline = make_pipeline(QUEUES=4)
    updates = conversations(chats=40, each=5)
    ids = pipeline.push(*updates)
    queues = dict(zip(ids, [queue_of(keys_of(update), 0, 4) for update in updates], strict=True))
    pipeline.poller()
    # When a worker consumes two of them
    taken = {update for update, queue in queues.items() if queue in ("updates.0", "updates.1")}
    assert 0 < len(taken) < len(ids)
    first = pipeline.worker("threads", 4, "-Q", "updates.0,updates.1")
    pipeline.ended(*taken)
    until(lambda: pipeline.pending() == len(ids) - len(taken))
    # Then the rest waits until another worker consumes the other two
    assert set(pipeline.happened("start")) == taken
    second = pipeline.worker("threads", 4, "-Q", "updates.2,updates.3")
    pipeline.drained()
    pipeline.check_once_each()
    # And each ran only updates of its own queues
    assert {queues[event.id] for event in pipeline.history if event.worker == first.name} == {
        "updates.0",
        "updates.1",
    }
    assert {event.worker for event in pipeline.history} == {first.name, second.name}


def test_order_survives_a_change_of_queues(pipeline: Pipeline) -> None:
    # Given updates that were appended to two queues
    pipeline.push(*conversations(chats=40, each=3))
    poller = pipeline.poller(QUEUES=2)
    until(lambda: pipeline.count("appended") == 120)
    poller.stop()
    # When more updates of the same chats are appended to sixteen queues
    pipeline.push(*conversations(chats=40, each=3))
    poller = pipeline.poller(QUEUES=16)
    until(lambda: pipeline.count("appended") == 240)
    poller.stop()
    # Then a poller and a worker with fewer queues log which ones are not consumed
    sentence = "which no worker reads while QUEUES is 2: restore the former QUEUES until they are processed"
    fewer = [pipeline.poller(QUEUES=2), pipeline.worker("threads", 4, QUEUES=2)]
    for each in fewer:
        each.tells(sentence)
        each.stop()
    # And a worker with all sixteen queues runs each chat in order
    pipeline.worker("threads", 4, QUEUES=16)
    pipeline.drained()
    pipeline.check_once_each()


def test_check_reports_updates_in_queues_that_no_worker_reads(make_pipeline: MakePipeline) -> None:
    # Given updates that were appended to sixteen queues
    pipeline = make_pipeline(QUEUES=16)
    ids = pipeline.push(*conversations(chats=40, each=1))
    poller = pipeline.poller()
    until(lambda: pipeline.count("appended") == len(ids))
    poller.stop()
    # When poller and worker run with three queues, and have processed these
    pipeline.settings["QUEUES"] = 3
    pipeline.poller()
    pipeline.worker("threads", 4)
    left = {queue_of(keys_of(message(1, chat)), 0, 16) for chat in range(1, 41)} - {f"updates.{n}" for n in range(3)}
    stuck = sum(queue_of(keys_of(message(1, chat)), 0, 16) in left for chat in range(1, 41))
    until(lambda: pipeline.pending() == stuck)
    # Then the check names the queues that no worker reads, and how many updates wait there
    [line] = [line for line in command_output(pipeline, "check", code=1).splitlines() if not line.startswith("ok ")]
    assert line.startswith(f"WRONG queues: {stuck} updates wait in updates.10")
    assert all(queue in line for queue in left)
    # And it passes again when all queues are read
    pipeline.worker("threads", 4, QUEUES=16)
    pipeline.drained()
    pipeline.settings["QUEUES"] = 16
    assert "WRONG queues" not in command_output(pipeline, "check")
