"""A handler that fails, and updates that are none: their chats go on, and other chats never wait."""

from __future__ import annotations

from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import BOT_ID, message
from tests.support.waiting import until


def test_a_failed_update_is_tried_again_in_its_place(make_pipeline: MakePipeline, pool: tuple[str, int]) -> None:
    # Given an update that fails twice, and the next one of its chat
    pipeline = make_pipeline(RETRY_BACKOFF=0.01)
    failing, following = pipeline.push(message(1, 7, do="fails:2"), message(2, 7))
    # When they run
    pipeline.poller()
    pipeline.worker(*pool)
    pipeline.drained()
    # Then the first one ran until it ended, knowing its attempts, and only then the second one
    assert [(event.what, event.id, event.attempt) for event in pipeline.history] == [
        ("start", failing, 1),
        ("raise", failing, 1),
        ("start", failing, 2),
        ("raise", failing, 2),
        ("start", failing, 3),
        ("end", failing, 3),
        ("start", following, 1),
        ("end", following, 1),
    ]
    assert pipeline.simulator.answers() == {7: [1, 2]}
    assert pipeline.dead() == []
    assert pipeline.leftovers() == []


#: What a handler does to fail, and what the dead letters say of it: type and message.
FAILURES = {
    "fails:9": ("RuntimeError", "attempt {attempt} of {update}"),
    "exits:9": ("HandlerEndedError", "the handler ended with SystemExit: attempt {attempt}"),
    "interrupts:9": ("HandlerEndedError", "the handler ended with KeyboardInterrupt: attempt {attempt}"),
    "oddly:9": ("OddError", "(no message: its __str__ raised LookupError)"),
}


def test_updates_that_always_fail_are_buried_and_their_chats_go_on(
    make_pipeline: MakePipeline, pool: tuple[str, int]
) -> None:
    # Given three chats with an update that always fails, and another one
    pipeline = make_pipeline(RETRY_BACKOFF=0.01, MAX_ATTEMPTS=2)
    failing = pipeline.push(*(message(1, chat, do=do) for chat, do in enumerate(FAILURES, 1)))
    following = pipeline.push(*(message(2, chat) for chat, _ in enumerate(FAILURES, 1)))
    # When they run
    pipeline.poller()
    pipeline.worker(*pool)
    pipeline.drained()
    # Then the failing ones were tried so often and then buried, and only then their chats went on
    assert sorted(pipeline.dead()) == sorted(f"{BOT_ID}:{update}" for update in failing)
    for bad, good, (kind, text) in zip(failing, following, FAILURES.values(), strict=True):
        happened = [(event.what, event.id) for event in pipeline.history if event.id in (bad, good)]
        assert happened == [*[("start", bad), ("raise", bad)] * 2, ("start", good), ("end", good)]
        # And every failure is written down
        problems = pipeline.problems(f"{BOT_ID}:{bad}")
        assert [problem["attempt"] for problem in problems] == [1, 2]
        for problem in problems:
            told = text.format(attempt=problem["attempt"], update=bad)
            assert (problem["type"], problem["message"]) == (kind, told)
            assert "in handle" in problem["traceback"]


def test_only_its_chat_waits_for_a_retry(make_pipeline: MakePipeline) -> None:
    # Given an update whose next attempt is a minute away
    pipeline = make_pipeline(RETRY_BACKOFF=60)
    failing, following = pipeline.push(message(1, 7, do="fails:9"), message(2, 7))
    pipeline.poller()
    pipeline.worker("threads", 4)
    until(lambda: pipeline.state_of(failing) == "delayed")
    # When other chats talk
    others = pipeline.push(*(message(1, chat) for chat in range(8, 28)))
    pipeline.ended(*others)
    # Then they were answered, and its own chat waits
    assert pipeline.state_of(failing) == "delayed"
    assert pipeline.state_of(following) == "waiting"
    assert following not in pipeline.happened("start")


def test_a_malformed_update_is_buried_and_its_batch_goes_on(make_pipeline: MakePipeline) -> None:
    # Given a batch with updates, and among them what is none
    pipeline = make_pipeline()
    good = [{"update_id": place, **message(place, 7)} for place in (1, 4, 7)]
    bad = ["a text", None, {"message": {"text": "without an id"}}, {"update_id": True}]
    pipeline.simulator.push_raw(good[0], bad[0], bad[1], good[1], bad[2], bad[3], good[2])
    # When it is polled
    pipeline.poller()
    pipeline.worker("threads", 4)
    until(lambda: pipeline.simulator.stats()["confirmed"])
    # Then the updates run, and what is none is buried as it came
    pipeline.ended(1, 4, 7)
    until(lambda: pipeline.pending() == 0)
    assert pipeline.happened("start") == [1, 4, 7]
    assert len(pipeline.dead()) == len(bad)
    assert sorted(str(pipeline.stored(buried)) for buried in pipeline.dead()) == sorted(map(str, bad))
    assert {pipeline.problems(buried)[0]["type"] for buried in pipeline.dead()} == {"MalformedUpdate"}


def test_an_update_that_order_by_fails_on_is_buried(make_pipeline: MakePipeline) -> None:
    # Given an ORDER_BY that raises for one update
    pipeline = make_pipeline(ORDER_BY="tests.support.orders:by_thread")
    first, unreadable, last = pipeline.push(message(1, 7), message(2, 666), message(3, 7))
    # When they are polled
    pipeline.poller()
    pipeline.worker("threads", 4)
    pipeline.drained()
    # Then that one is buried with the error, and the others have run
    assert pipeline.happened("start") == [first, last]
    assert pipeline.dead() == [f"{BOT_ID}:{unreadable}"]
    [problem] = pipeline.problems(f"{BOT_ID}:{unreadable}")
    assert problem["type"] == "KeysError"
    assert "LookupError: no thread for 666" in problem["message"]
