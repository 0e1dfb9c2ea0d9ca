"""What becomes of an update: decided by a table, carried out on real lanes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import Ignore, Reject, Retry, WorkerShutdown
from greenlet import GreenletExit
from redis import Redis

from settings import Settings, load
from tasks import update
from tasks.bot.bot import Bot
from tasks.bot.context import Context
from tasks.lanes import Lanes, clock, install, keys
from tasks.lanes.connect import connect
from tasks.lanes.delivery import Delivery
from tasks.lanes.store import NewMessage
from tasks.outcome import LONGEST_MESSAGE, LONGEST_TRACEBACK, Bury, RetryIn, decide, problem_of

LEASE_MS = 60_000


def settings_of(**given: object) -> Settings:
    return load({name: str(value) for name, value in given.items()}, env_file=None)


# -- the decision


@pytest.mark.parametrize(
    ("attempt", "given", "decision"),
    [
        (1, {}, RetryIn(1)),
        (2, {}, RetryIn(2)),
        (3, {}, RetryIn(4)),
        (4, {}, RetryIn(8)),
        (5, {}, Bury()),
        (6, {}, Bury()),
        (1, {"MAX_ATTEMPTS": 1}, Bury()),
        (1, {"RETRY_BACKOFF": 0}, RetryIn(0)),
        (3, {"RETRY_BACKOFF": 0.5}, RetryIn(2)),
        (6, {"MAX_ATTEMPTS": 1000}, RetryIn(32)),
        (7, {"MAX_ATTEMPTS": 1000}, RetryIn(60)),
        (999, {"MAX_ATTEMPTS": 1000}, RetryIn(60)),
        (1000, {"MAX_ATTEMPTS": 1000}, Bury()),
    ],
)
def test_a_failure_is_tried_again_ever_later_and_then_buried(
    attempt: int, given: dict[str, object], decision: RetryIn | Bury
) -> None:
    assert decide(attempt, settings_of(**given)) == decision


def test_no_number_of_attempts_is_too_much_for_the_backoff() -> None:
    for attempt in range(1, 1000):
        assert decide(attempt, settings_of(MAX_ATTEMPTS=1000, RETRY_BACKOFF=60)) == RetryIn(60)


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def test_a_problem_tells_type_message_attempt_and_traceback_with_its_cause() -> None:
    problem = problem_of(raised(ValueError("not so"), raised(KeyError("price"))), attempt=3)
    assert (problem["type"], problem["message"], problem["attempt"]) == ("ValueError", "not so", 3)
    assert "KeyError: 'price'" in problem["traceback"]
    assert problem["traceback"].endswith("ValueError: not so\n")
    assert "in raised" in problem["traceback"]


def test_a_problem_can_be_told_whatever_the_error_holds() -> None:
    assert (
        json.loads(json.dumps(problem_of(raised(ValueError("\ud800 \x00 é")), attempt=1)))["message"] == "\ud800 \x00 é"
    )


class UntellableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words for it")


def test_an_error_that_cannot_be_told_is_a_problem_all_the_same() -> None:
    problem = problem_of(raised(UntellableError()), attempt=1)
    assert (problem["type"], problem["message"]) == (
        "UntellableError",
        "(no message: its __str__ raised RuntimeError)",
    )


def test_a_problem_keeps_the_beginning_of_a_long_message_and_the_end_of_a_long_traceback() -> None:
    problem = problem_of(raised(ValueError("begin" + "x" * 1_000_000)), attempt=1)
    assert problem["message"].startswith("begin")
    assert len(problem["message"]) == LONGEST_MESSAGE
    assert problem["traceback"].endswith("xx\n")
    assert len(problem["traceback"]) == LONGEST_TRACEBACK


# -- the bot


@pytest.fixture
def handler(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the bot raise this."""

    def make(error: BaseException) -> None:
        def handle(_: Context) -> None:
            raise error

        monkeypatch.setattr(update, "bot", lambda: Bot(handle))

    return make


@pytest.mark.parametrize("error", [SystemExit(3), SystemExit(), BaseException("odd"), GeneratorExit()])
def test_what_is_no_exception_is_a_failure_of_the_handler(handler: Any, error: BaseException) -> None:
    handler(error)
    with pytest.raises(update.HandlerEndedError, match=type(error).__name__):
        update.run_bot(Context({}, api=None))  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [ValueError(), KeyboardInterrupt(), WorkerShutdown(0), GreenletExit()])
def test_an_exception_and_the_end_of_the_worker_stay_what_they_are(handler: Any, error: BaseException) -> None:
    handler(error)
    with pytest.raises(type(error)):
        update.run_bot(Context({}, api=None))  # type: ignore[arg-type]


# -- carried out on real lanes


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with connect(redis_url) as client:
        yield client


@pytest.fixture
def lanes(redis_url: str) -> Iterator[Lanes]:
    """Those of an app of its own."""
    with Celery("test", broker=redis_url, set_as_current=False) as app:
        yield install(app)


def delivered(lanes: Lanes, failed: int = 0) -> Delivery:
    """A message in our hands that runs; another of its lane waits."""
    lanes.store.append([NewMessage(f"1:{n}", "updates.0", "{}", ["1/chat:7"]) for n in (1, 2)])
    leased = lanes.store.turn(["updates.0"], holder="test", lease_ms=LEASE_MS, room=1).leased
    [held] = lanes.settler.turn_ended(leased, clock.now_s(), suspects_wait=False)
    lanes.settler.claim(held.tag, starts=True)
    return Delivery(lanes, held.tag, held.deadline_s, failed=failed, died=0)


def is_held(delivery: Delivery) -> bool:
    """Whether this process still believes to have it."""
    settler = delivery.lanes.settler
    settler.read_handoff()
    return settler.holds(delivery.tag)


def state_of(redis: Redis, number: int) -> str:
    return (redis.hget(keys.message(f"1:{number}"), "state") or b"").decode()


def problems(redis: Redis) -> list[dict[str, Any]]:
    return [json.loads(problem) for problem in redis.lrange(keys.errors("1:1"), 0, -1)]


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "settings", lambda: settings_of(MAX_ATTEMPTS=3, RETRY_BACKOFF=60))


ERROR = ValueError("not so")


def test_a_failure_is_delayed_in_its_place_and_told_to_celery_as_a_retry(lanes: Lanes, redis: Redis) -> None:
    delivery = delivered(lanes)
    with pytest.raises(Retry) as told:
        update.fail(delivery, ERROR)
    assert (told.value.exc, told.value.when) == (ERROR, 60)
    assert (state_of(redis, 1), state_of(redis, 2)) == ("delayed", "waiting")
    assert [(problem["type"], problem["attempt"]) for problem in problems(redis)] == [("ValueError", 1)]
    assert not is_held(delivery)


def test_the_last_failure_is_buried_and_told_to_celery_as_it_was_raised(lanes: Lanes, redis: Redis) -> None:
    delivery = delivered(lanes, failed=2)
    with pytest.raises(ValueError, match="not so"):
        update.fail(delivery, ERROR)
    assert (state_of(redis, 1), state_of(redis, 2)) == ("buried", "ready")
    assert [(problem["message"], problem["attempt"]) for problem in problems(redis)] == [("not so", 3)]
    assert not is_held(delivery)


@pytest.mark.parametrize("failed", [0, 2])
def test_a_failure_after_the_lease_changes_nothing(lanes: Lanes, redis: Redis, failed: int) -> None:
    # Given a delivery whose message somebody else has been given meanwhile
    delivery = delivered(lanes, failed)
    lanes.store.release([(delivery.id, delivery.fence)])
    [newer] = lanes.store.turn(["updates.0"], holder="other", lease_ms=LEASE_MS, room=1).leased
    # When its handler fails
    with pytest.raises(Ignore, match="the lease of 1:1 was over"):
        update.fail(delivery, ERROR)
    # Then the other one's lease is untouched
    assert lanes.store.holds("1:1", newer.fence)
    assert problems(redis) == []


@pytest.mark.parametrize("failed", [0, 2])
def test_a_failure_that_redis_cannot_be_told_is_given_back(lanes: Lanes, failed: int) -> None:
    delivery = delivered(lanes, failed)
    with connect("redis://127.0.0.1:1/0") as away:
        delivery.lanes.store.client = away
        with pytest.raises(Reject, match="could not tell Redis that 1:1 failed") as told:
            update.fail(delivery, ERROR)
    assert told.value.requeue


def test_whatever_goes_wrong_with_telling_a_failure_the_update_does_not_count_as_done(
    lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To Celery a task that raised is done: its update would be settled."""
    monkeypatch.setattr(update, "problem_of", lambda error, attempt: {"cannot be told": object()})
    with pytest.raises(Reject) as told:
        update.fail(delivered(lanes), ERROR)
    assert told.value.requeue
