"""Every update runs once, in order, and alone in its lanes: from the Bot API to the bot and back."""

from __future__ import annotations

import random

import celery

from tests.pipeline.conftest import MakePipeline
from tests.support.lab_app import FAST
from tests.support.pipeline import Pipeline, conversations, message
from tests.support.process import Process
from tests.support.waiting import until


def test_hundreds_of_updates_run_once_and_in_order(pipeline: Pipeline, pool: tuple[str, int]) -> None:
    # Given 800 updates of 50 chats
    pipeline.push(*conversations(chats=50, each=16))
    # When a poller and one worker run
    pipeline.poller()
    worker = pipeline.worker(*pool)
    pipeline.drained()
    worker.stop()
    # Then each ran once, in order, alone in its chat
    pipeline.check_once_each()
    # And Telegram was called in that order
    assert pipeline.simulator.answers() == {chat: list(range(1, 17)) for chat in range(1, 51)}
    # And Redis holds nothing of them
    assert pipeline.count("settled") == 800
    assert pipeline.leftovers() == []


def test_coroutines_of_80_chats_keep_their_order_on_one_thread(make_pipeline: MakePipeline) -> None:
    # Given 80 chats, in each of which every update counts, the first and the fourth wait, and the second fails once
    pipeline = make_pipeline(BOT="tests.support.bots:coroutines", RETRY_BACKOFF=0.01, LEASE_SECONDS=3)
    orders = ("threads:seen gate:a", "fails:1", "", "gate:b", "")
    rounds = [
        pipeline.push(*(message(number, chat, do=f"{do} counts:up") for chat in range(1, 81)))
        for number, do in enumerate(orders, start=1)
    ]
    pipeline.poller()
    # When a worker runs all of them at the same time
    killed = pipeline.worker("threads", 80)
    pipeline.started(*rounds[0])
    # Then it does not use a thread for each, if the thread pool of lanes/fast runs them
    seen = until(lambda: (pipeline.directory / "seen").read_text())
    assert not FAST or celery.VERSION < (5, 7) or int(seen) < 20
    # And when it is killed while the fourth updates are in flight, other workers take over
    pipeline.open("a")
    pipeline.started(*rounds[3])
    killed.kill_all()
    pipeline.open("b")
    workers = [pipeline.worker("threads", 80), pipeline.worker("prefork", 2)]
    pipeline.drained()
    for worker in workers:
        worker.stop()
    # Then all updates run in order, and each is counted and reported once
    pipeline.check_order(killed)
    assert pipeline.simulator.answers() == {chat: [1, 2, 3, 4, 5] for chat in range(1, 81)}
    assert all(pipeline.session(chat) == {"n": 5} for chat in range(1, 81))
    assert {each.name for each in pipeline.directory.glob("error.*")} == {f"error.1.{update}" for update in rounds[1]}
    assert pipeline.leftovers() == []


def test_updates_ordered_by_chat_and_user_run_one_at_a_time_in_both(make_pipeline: MakePipeline) -> None:
    # Given 800 updates of 40 users in 40 groups; the first ones wait until both workers have some
    pipeline = make_pipeline(ORDER_BY="chat+user")
    rng = random.Random(7)
    gate = ["gate:both"] * 60 + [""] * 740
    updates = [message(n, -rng.randint(1, 40), rng.randint(101, 140), do) for n, do in enumerate(gate, start=1)]
    # When two workers run them
    workers = [pipeline.worker("threads", 8), pipeline.worker("prefork", 2)]
    pipeline.push(*updates)
    pipeline.poller()
    until(lambda: {event.worker for event in pipeline.history} == {worker.name for worker in workers})
    pipeline.open("both")
    pipeline.drained()
    # Then each ran once, after all earlier ones of its group and of its user
    pipeline.check_once_each()


def test_an_update_waits_for_its_chat_and_for_its_user(make_pipeline: MakePipeline) -> None:
    # Given an update that runs in group -1, one of user 102 that runs in another group, and one of user 102 in group -1
    pipeline = make_pipeline(ORDER_BY="chat+user")
    in_group, of_user, of_both, of_others = pipeline.push(
        message(1, -1, 101, do="gate:group"),
        message(2, -2, 102, do="gate:user"),
        message(3, -1, 102),
        message(4, -3, 103),
    )
    pipeline.poller()
    pipeline.worker("threads", 4)
    pipeline.started(in_group, of_user, of_others)
    # When only one of the two updates before it has ended
    pipeline.open("group")
    pipeline.ended(in_group, of_others)
    [later] = pipeline.push(message(5, -3, 103))
    pipeline.ended(later)
    # Then it has not started, though slots are free
    assert of_both not in pipeline.happened("start")
    # And when the other has ended too, it runs
    pipeline.open("user")
    pipeline.ended(of_both)
    pipeline.check_once_each()


def test_a_worker_joins_and_leaves_under_load(pipeline: Pipeline) -> None:
    # Given a worker in the middle of 1,000 updates; in every chat, one of them waits at the gate
    pipeline.push(
        *(message(n, chat, do="gate:joined" if n == 10 else "") for n in range(1, 21) for chat in range(1, 51))
    )
    pipeline.poller()
    first = pipeline.worker("prefork", 2)
    pipeline.some_ended(100)
    # When a second worker starts, runs updates, and is stopped
    second = pipeline.worker("threads", 4)
    pipeline.open("joined")
    until(lambda: len(of_worker(pipeline, second, "end")) >= 100)
    second.stop()
    # Then every update that it started has ended
    assert sorted(of_worker(pipeline, second, "start")) == sorted(of_worker(pipeline, second, "end"))
    # And the first worker runs the rest, each update once
    pipeline.drained()
    pipeline.check_once_each()
    assert first.is_running()


def of_worker(pipeline: Pipeline, worker: Process, what: str) -> list[int]:
    return [event.id for event in pipeline.history if (event.what, event.worker) == (what, worker.name)]
