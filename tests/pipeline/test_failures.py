"""Failing handlers and malformed updates: their chats continue, and other chats do not wait."""

from __future__ import annotations

from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import BOT_ID, message
from tests.support.waiting import until


def test_a_failed_update_is_retried_before_the_next_one(make_pipeline: MakePipeline, pool: tuple[str, int]) -> None:
    # Given an update that fails twice, and another one of the same chat
    pipeline = make_pipeline(RETRY_BACKOFF=0.01)
    failing, following = pipeline.push(message(1, 7, do="fails:2"), message(2, 7))
    # When they run
    pipeline.poller()
    pipeline.worker(*pool)
    pipeline.drained()
    # Then the first one runs until it succeeds, with increasing attempt numbers, before the second one starts
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


#: An order that makes the handler fail -> type and message of the error in the dead letters.
FAILURES = {
    "fails:9": ("RuntimeError", "attempt {attempt} of {update}"),
    "exits:9": ("HandlerEndedError", "the handler ended with SystemExit: attempt {attempt}"),
    "interrupts:9": ("HandlerEndedError", "the handler ended with KeyboardInterrupt: attempt {attempt}"),
    "fails_oddly:9": ("OddError", "(no message: its __str__ raised LookupError)"),
}


def test_updates_that_always_fail_are_buried_and_their_chats_continue(
    make_pipeline: MakePipeline, pool: tuple[str, int]
) -> None:
    # Given chats with an update that always fails, and one more update each
    pipeline = make_pipeline(RETRY_BACKOFF=0.01, MAX_ATTEMPTS=2)
    failing = pipeline.push(*(message(1, chat, do=do) for chat, do in enumerate(FAILURES, 1)))
    following = pipeline.push(*(message(2, chat) for chat, _ in enumerate(FAILURES, 1)))
    # When they run
    pipeline.poller()
    pipeline.worker(*pool)
    pipeline.drained()
    # Then the failing updates are buried after two attempts, and only then their chats continue
    assert sorted(pipeline.dead()) == sorted(f"{BOT_ID}:{update}" for update in failing)
    for bad, good, (kind, text) in zip(failing, following, FAILURES.values(), strict=True):
        happened = [(event.what, event.id) for event in pipeline.history if event.id in (bad, good)]
        assert happened == [*[("start", bad), ("raise", bad)] * 2, ("start", good), ("end", good)]
        # And every failure is recorded
        problems = pipeline.problems(f"{BOT_ID}:{bad}")
        assert [problem["attempt"] for problem in problems] == [1, 2]
        for problem in problems:
            expected = text.format(attempt=problem["attempt"], update=bad)
            assert (problem["type"], problem["message"]) == (kind, expected)
            assert "in handle" in problem["traceback"]


def test_only_its_chat_waits_for_a_retry(make_pipeline: MakePipeline) -> None:
    # Given an update whose next attempt is a minute away
    pipeline = make_pipeline(RETRY_BACKOFF=60)
    failing, following = pipeline.push(message(1, 7, do="fails:9"), message(2, 7))
    pipeline.poller()
    pipeline.worker("threads", 4)
    until(lambda: pipeline.state_of(failing) == "delayed")
    # When other chats get updates
    others = pipeline.push(*(message(1, chat) for chat in range(8, 28)))
    pipeline.ended(*others)
    # Then these run, and its own chat waits
    assert pipeline.state_of(failing) == "delayed"
    assert pipeline.state_of(following) == "waiting"
    assert following not in pipeline.happened("start")


def test_a_malformed_update_is_buried_and_its_batch_continues(make_pipeline: MakePipeline) -> None:
    # Given a batch of valid and malformed updates
    pipeline = make_pipeline()
    good = [{"update_id": number, **message(number, 7)} for number in (1, 4, 7)]
    bad = ["a text", None, {"message": {"text": "without an id"}}, {"update_id": True}]
    pipeline.simulator.push_raw(good[0], bad[0], bad[1], good[1], bad[2], bad[3], good[2])
    # When it is polled
    pipeline.poller()
    pipeline.worker("threads", 4)
    until(lambda: pipeline.simulator.stats()["confirmed"])
    # Then the valid updates run, and the malformed ones are buried unchanged
    pipeline.ended(1, 4, 7)
    until(lambda: pipeline.pending() == 0)
    assert pipeline.happened("start") == [1, 4, 7]
    assert len(pipeline.dead()) == len(bad)
    assert sorted(str(pipeline.stored(buried)) for buried in pipeline.dead()) == sorted(map(str, bad))
    assert {pipeline.problems(buried)[0]["type"] for buried in pipeline.dead()} == {"MalformedUpdate"}


def test_an_update_for_which_order_by_raises_is_buried(make_pipeline: MakePipeline) -> None:
    # Given an ORDER_BY that raises for one update
    pipeline = make_pipeline(ORDER_BY="tests.support.orders:by_thread")
    first, unreadable, last = pipeline.push(message(1, 7), message(2, 666), message(3, 7))
    # When they are polled
    pipeline.poller()
    pipeline.worker("threads", 4)
    pipeline.drained()
    # Then that one is buried with the error, and the others run
    assert pipeline.happened("start") == [first, last]
    assert pipeline.dead() == [f"{BOT_ID}:{unreadable}"]
    [problem] = pipeline.problems(f"{BOT_ID}:{unreadable}")
    assert problem["type"] == "KeysError"
    assert "LookupError: no thread for 666" in problem["message"]
