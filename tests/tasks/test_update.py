"""The outcome of an update: decided by a pure function, carried out on real lanes."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest
from celery import Celery
from celery.exceptions import Ignore, Reject, Retry, SoftTimeLimitExceeded, WorkerShutdown
from greenlet import GreenletExit
from redis import Redis

from celery_lanes import Lanes, install
from celery_lanes.errors import Interrupted, LeaseLost, RedisAway
from celery_lanes.leases.background import AckFlusher
from celery_lanes.protocol import NewMessage, Outcome, SetTimer, Store, connect, keys
from celery_lanes.runtime import clock
from celery_lanes.worker.delivery import Delivery
from celery_lanes.worker.shutdown import HandlerEndedError
from chatlanes.bot.bot import Bot, UpdateTimeoutError
from chatlanes.bot.calls.run_calls import Calls, LaneCalls
from chatlanes.bot.context import Context
from chatlanes.broadcasts import Broadcasts
from chatlanes.logs import Secrets
from chatlanes.logs.errors import LONGEST_MESSAGE, LONGEST_TRACEBACK, problem_of
from chatlanes.settings import Settings, load
from chatlanes.tasks import bots as served_bots
from chatlanes.tasks import broadcasts, limits, settlement, update
from chatlanes.tasks.bots import Bots, ServedBot
from chatlanes.tasks.limits import Limits
from chatlanes.tasks.settlement import decide
from chatlanes.telegram.client import BotApi
from chatlanes.telegram.flood import Gate, RunGate
from chatlanes.telegram.flood.parking import FloodWait, Parking, ParkUpdate
from chatlanes.traces import Ending

LEASE_MS = 60_000
TOKEN = "1:TOKEN"
ENDS = [KeyboardInterrupt(), WorkerShutdown(0), GreenletExit()]


@pytest.fixture(autouse=True)
def sigint_interrupts() -> Iterator[None]:
    """As in a terminal. A shell starts background jobs with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def settings_of(**given: object) -> Settings:
    return load({name: str(value) for name, value in given.items()}, env_file=None)


# -- the decision


@pytest.mark.parametrize(
    ("attempt", "given", "delay_s"),
    [
        (1, {}, 1),
        (2, {}, 2),
        (3, {}, 4),
        (4, {}, 8),
        (5, {}, None),
        (6, {}, None),
        (1, {"MAX_ATTEMPTS": 1}, None),
        (1, {"RETRY_BACKOFF": 0}, 0),
        (3, {"RETRY_BACKOFF": 0.5}, 2),
        (6, {"MAX_ATTEMPTS": 1000}, 32),
        (7, {"MAX_ATTEMPTS": 1000}, 60),
        (999, {"MAX_ATTEMPTS": 1000}, 60),
        (1000, {"MAX_ATTEMPTS": 1000}, None),
    ],
)
def test_failures_are_retried_with_backoff_and_then_buried(
    attempt: int, given: dict[str, object], delay_s: float | None
) -> None:
    assert decide(attempt, settings_of(**given)) == delay_s


def test_final_failure_is_buried_at_once() -> None:
    assert decide(1, settings_of(MAX_ATTEMPTS=1000), is_final=True) is None


def test_backoff_is_limited_for_any_number_of_attempts() -> None:
    settings = settings_of(MAX_ATTEMPTS=1000, RETRY_BACKOFF=60)
    assert {decide(attempt, settings) for attempt in range(1, 1000)} == {60}


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def test_problem_has_type_message_attempt_and_traceback() -> None:
    problem = problem_of(raised(ValueError("not so"), raised(KeyError("price"))), attempt=3, secrets=Secrets())
    assert (problem["type"], problem["message"], problem["attempt"]) == ("ValueError", "not so", 3)
    assert "KeyError: 'price'" in problem["traceback"]
    assert problem["traceback"].endswith("ValueError: not so\n")
    assert "in raised" in problem["traceback"]


def test_problem_is_valid_json_for_any_message() -> None:
    problem = problem_of(raised(ValueError("\ud800 \x00 é")), attempt=1, secrets=Secrets())
    assert json.loads(json.dumps(problem))["message"] == "\ud800 \x00 é"


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_problem_of_an_error_without_a_text() -> None:
    problem = problem_of(raised(UnreadableError()), attempt=1, secrets=Secrets())
    assert (problem["type"], problem["message"]) == (
        "UnreadableError",
        "(no message: its __str__ raised RuntimeError)",
    )


def test_long_problems_are_truncated() -> None:
    problem = problem_of(raised(ValueError("begin" + "x" * 1_000_000)), attempt=1, secrets=Secrets())
    assert problem["message"].startswith("begin")
    assert problem["message"].endswith("xx [left out: 998,005 characters]")
    assert len(problem["message"]) < LONGEST_MESSAGE + 100
    assert problem["traceback"].endswith("xx [left out: 998,005 characters]\n")
    assert len(problem["traceback"]) < LONGEST_TRACEBACK


# -- the bot


def raising(error: BaseException) -> Bot:
    def handle(_: Context) -> None:
        raise error

    return Bot(handle)


@pytest.mark.parametrize("error", [SystemExit(3), SystemExit(), BaseException("odd"), GeneratorExit()])
def test_base_exception_is_a_failure_of_the_handler(error: BaseException) -> None:
    with pytest.raises(HandlerEndedError, match=type(error).__name__):
        update.run_bot(raising(error), Context({}, api=None))  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [ValueError(), ParkUpdate("flood"), *ENDS])
def test_exceptions_and_worker_exits_are_unchanged(error: BaseException) -> None:
    with pytest.raises(type(error)):
        update.run_bot(raising(error), Context({}, api=None))  # type: ignore[arg-type]


@pytest.mark.parametrize("error", ENDS)
def test_worker_exit_raised_in_a_thread_is_a_failure(error: BaseException) -> None:
    with ThreadPoolExecutor(1) as thread, pytest.raises(HandlerEndedError, match=type(error).__name__):
        thread.submit(update.run_bot, raising(error), Context({}, api=None)).result(60)  # type: ignore[arg-type]


def test_interruption_is_a_timeout_with_its_cause() -> None:
    with pytest.raises(UpdateTimeoutError) as raised_error:
        update.run_bot(raising(SoftTimeLimitExceeded()), Context({}, api=None))  # type: ignore[arg-type]
    assert "in handle" in problem_of(raised_error.value, attempt=1, secrets=Secrets())["traceback"]


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), SoftTimeLimitExceeded(), UnreadableError()])
def test_error_of_a_hook_is_only_logged(
    error: BaseException, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hook(*_: object) -> None:
        raise error

    monkeypatch.setattr(served_bots, "logger", logging.getLogger("hooks"))
    served_bots.call_hook(hook, 1, 2)
    assert "the bot's hook hook failed" in caplog.text


@pytest.mark.parametrize("error", ENDS)
def test_worker_exit_ends_a_hook_too(error: BaseException) -> None:
    def hook(*_: object) -> None:
        raise error

    with pytest.raises(type(error)):
        served_bots.call_hook(hook)


# -- carried out on real lanes


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with connect(redis_url) as client:
        yield client


@pytest.fixture
def lanes(redis_url: str) -> Iterator[Lanes]:
    """Lanes of a new app."""
    with Celery("test", broker=redis_url, set_as_current=False) as app:
        yield install(app)


def delivered(lanes: Lanes, failed: int = 0) -> Delivery:
    """A message that runs in this process; another one of its lane waits."""
    lanes.store.append([NewMessage(f"1:{n}", "updates.0", "{}", ["1/chat:7"]) for n in (1, 2)])
    leased = lanes.store.turn(["updates.0"], holder="test", lease_ms=LEASE_MS, room=1).leased
    [held] = lanes.in_flight.finish_fetch(leased, clock.now_s(), suspects_wait=False)
    lanes.in_flight.claim(held.tag, starts=True)
    return Delivery(lanes, held.tag, held.deadline_s, failed=failed, died=0)


def is_held(delivery: Delivery) -> bool:
    """True if this process still has the message in flight."""
    in_flight = delivery.lanes.in_flight
    in_flight.reports.read()
    return in_flight.holds(delivery.tag)


def state_of(redis: Redis, number: int) -> str:
    return (redis.hget(keys.message(f"1:{number}"), "state") or b"").decode()


def problems(redis: Redis) -> list[dict[str, Any]]:
    return [json.loads(problem) for problem in redis.lrange(keys.errors("1:1"), 0, -1)]


def served(bot_token: str = TOKEN, **hooks: Any) -> ServedBot:
    """A bot that does nothing; three attempts, and none after a LookupError."""
    settings = settings_of(BOT_TOKEN=bot_token, MAX_ATTEMPTS=3, RETRY_BACKOFF=60)
    bot = Bot(lambda _: None, never_retry=(LookupError,), **hooks)
    return ServedBot(settings, bot, BotApi("http://127.0.0.1:1", bot_token), Gate(bot_token))


@pytest.fixture(autouse=True)
def bots(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bot of `served` is the only one."""
    monkeypatch.setattr(update, "bots", lambda: Bots([served()]))


ERROR = ValueError("not so")


def test_failure_is_a_delayed_retry(lanes: Lanes, redis: Redis) -> None:
    delivery = delivered(lanes)
    with pytest.raises(Retry) as raised_error:
        settlement.fail(served(), delivery, ERROR, Secrets())
    assert (raised_error.value.exc, raised_error.value.when) == (ERROR, 60)
    assert (state_of(redis, 1), state_of(redis, 2)) == ("delayed", "waiting")
    assert [(problem["type"], problem["attempt"]) for problem in problems(redis)] == [("ValueError", 1)]
    assert not is_held(delivery)


def test_last_failure_is_buried(lanes: Lanes, redis: Redis) -> None:
    delivery = delivered(lanes, failed=2)
    with pytest.raises(ValueError, match="not so"):
        settlement.fail(served(), delivery, ERROR, Secrets())
    assert (state_of(redis, 1), state_of(redis, 2)) == ("buried", "ready")
    assert [(problem["message"], problem["attempt"]) for problem in problems(redis)] == [("not so", 3)]
    assert not is_held(delivery)


@pytest.mark.parametrize("failed", [0, 2])
def test_failure_after_the_lease_changes_nothing(lanes: Lanes, redis: Redis, failed: int) -> None:
    # Given a delivery whose message was leased to another worker meanwhile
    delivery = delivered(lanes, failed)
    lanes.store.release([(delivery.id, delivery.fence)])
    [newer] = lanes.store.turn(["updates.0"], holder="other", lease_ms=LEASE_MS, room=1).leased
    # When its handler fails
    with pytest.raises(Ignore, match="the lease of 1:1 was lost"):
        settlement.fail(served(), delivery, ERROR, Secrets())
    # Then the other worker's lease is not affected
    assert lanes.store.holds("1:1", newer.fence)
    assert problems(redis) == []


@pytest.mark.parametrize("failed", [0, 2])
def test_failure_without_redis_releases_the_update(lanes: Lanes, failed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes.in_flight, "lease_s", 0.1)  # the in-flight table outlives this test
    delivery = delivered(lanes, failed)
    with connect("redis://127.0.0.1:1/0") as away:
        delivery.lanes.store = Store(away)
        with pytest.raises(RedisAway):
            settlement.fail(served(), delivery, ERROR, Secrets())


def test_failing_report_does_not_settle_the_update(lanes: Lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery acknowledges a task that raised; its update would be settled."""
    monkeypatch.setattr(settlement, "problem_of", lambda error, attempt, secrets: {"not JSON": object()})
    with pytest.raises(Reject) as raised_error:
        settlement.fail(served(), delivered(lanes), ERROR, Secrets())
    assert raised_error.value.requeue


def test_never_retried_errors_are_buried_at_once(lanes: Lanes, redis: Redis) -> None:
    with pytest.raises(KeyError):
        settlement.fail(served(), delivered(lanes), KeyError("a LookupError too"), Secrets())
    assert (state_of(redis, 1), state_of(redis, 2)) == ("buried", "ready")
    assert [problem["attempt"] for problem in problems(redis)] == [1]


def test_each_broadcast_of_an_update_has_its_own_id(lanes: Lanes, redis: Redis) -> None:
    ctx = update.context_of({"update_id": 1}, served(), delivered(lanes), Parking(), 1)
    ids = [ctx.broadcast(chats, "sendMessage", text="hi") for chats in ([11, 12], [21])]
    assert ids == ["1-1", "1-2"]
    assert ctx.stored is not None
    assert [write.name for write in ctx.stored.writes if isinstance(write, SetTimer)] == ids
    assert [Broadcasts(redis, 1).progress(id_).total for id_ in ids] == [2, 1]


# -- parked updates


def test_parked_update_counts_no_failure(lanes: Lanes, redis: Redis) -> None:
    delivery = delivered(lanes)
    with pytest.raises(Retry) as raised_error:
        settlement.park(delivery, 60, FloodWait("chat 7 is paused"))
    assert (repr(raised_error.value.exc), raised_error.value.when) == ("FloodWait('chat 7 is paused')", 60)
    assert (state_of(redis, 1), state_of(redis, 2)) == ("delayed", "waiting")
    assert redis.hget(keys.message("1:1"), "failed") is None
    assert problems(redis) == []
    assert not is_held(delivery)


def test_failed_parking_releases_the_update(lanes: Lanes, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = delivered(lanes)
    lanes.store.release([(delivery.id, delivery.fence)])
    with pytest.raises(Ignore, match="the lease of 1:1 was lost"):
        settlement.park(delivery, 60, FloodWait())
    assert state_of(redis, 1) == "ready"
    monkeypatch.setattr(lanes.in_flight, "lease_s", 0.1)  # the in-flight table outlives this test
    delivery = Delivery(lanes, delivery.tag, delivery.deadline_s, failed=0, died=0)
    with connect("redis://127.0.0.1:1/0") as away:
        delivery.lanes.store = Store(away)
        with pytest.raises(RedisAway):
            settlement.park(delivery, 60, FloodWait())


def test_handler_that_swallows_its_parking_is_refused() -> None:
    parking = Parking()
    parking.check()
    with pytest.raises(ParkUpdate):
        parking.park("a flood wait", 60)
    with pytest.raises(ParkUpdate):
        parking.check()
    with pytest.raises(ParkUpdate):
        parking.park("a shorter one", 30)
    assert (parking.is_wanted, parking.reason, round(parking.delay_s())) == (True, "a flood wait", 60)


# -- evictions


class EvictionReports(NamedTuple):
    """The reports of an eviction to Celery and to the bot."""

    celery: list[object]
    bot: list[tuple[Context, Exception]]


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> EvictionReports:
    reports = EvictionReports([], [])
    monkeypatch.setattr(limits, "show_eviction", lambda app, request, problem, delay_s: reports.celery.append(delay_s))
    return reports


def evict(delivery: Delivery, redis_url: str, reports: EvictionReports) -> Context:
    """Evicts as the alarm of this thread would; returns the context of the handler."""
    ours = served(on_error=lambda *both: reports.bot.append(both))
    ctx = Context(
        {"update_id": 1},
        LaneCalls(ours.api, delivery, "repeat", lambda: RunGate(ours.gate, delivery, None)),
        delivery.attempt,
    )
    within = Limits(1, report=lambda: None, evict=lambda: None)
    limits.evict(Celery("test", set_as_current=False), within, None, ours, ctx, delivery)
    AckFlusher(delivery.lanes.in_flight, Store(connect(redis_url))).flush()
    return ctx


@pytest.mark.parametrize(
    ("failed", "states", "decision"),
    [(0, ("delayed", "waiting"), 60), (2, ("buried", "ready"), None)],
)
def test_evicted_update_is_retried_or_buried(
    lanes: Lanes,
    redis: Redis,
    redis_url: str,
    reports: EvictionReports,
    failed: int,
    states: tuple[str, str],
    decision: object,
) -> None:
    ctx = evict(delivered(lanes, failed), redis_url, reports)
    assert (state_of(redis, 1), state_of(redis, 2)) == states
    [problem] = problems(redis)
    assert (problem["type"], problem["attempt"]) == ("UpdateTimeoutError", failed + 1)
    assert "in evict" in problem["traceback"]
    # And it is reported to Celery and to the bot, whose hook can still make calls
    assert reports.celery == [decision]
    [(shown, error)] = reports.bot
    assert (shown.update, type(shown.api), type(error)) == (ctx.update, Calls, UpdateTimeoutError)


@pytest.mark.parametrize("end", ["settle", "retry", "bury", "call"])
def test_evicted_handler_changes_nothing(
    lanes: Lanes, redis: Redis, redis_url: str, reports: EvictionReports, end: str
) -> None:
    # Given an evicted update that runs again on another worker
    delivery = delivered(lanes)
    ctx = evict(delivery, redis_url, reports)
    redis.zadd(keys.DELAYED, {"1:1": 0})
    lanes.store.sweep(LEASE_MS)
    [newer] = lanes.store.turn(["updates.0"], holder="other", lease_ms=LEASE_MS, room=1).leased
    # When the old handler ends, or makes a call
    if end == "settle":
        delivery.done()
        lanes.in_flight.reports.read()
        lanes.in_flight.done(delivery.tag)
    elif end == "retry":
        assert delivery.retry(delay_s=0, problem={}) is Outcome.LOST
    elif end == "bury":
        assert delivery.bury({}) is Outcome.LOST
    else:
        with pytest.raises(LeaseLost, match="sendMessage was not called"):
            ctx.call("sendMessage")
    # Then the newer run is not affected
    assert not lanes.in_flight.pending_acks.has_any()
    assert lanes.store.holds("1:1", newer.fence)
    assert len(problems(redis)) == 1


def test_ended_run_is_not_evicted(lanes: Lanes, redis: Redis, redis_url: str, reports: EvictionReports) -> None:
    delivery = delivered(lanes)
    lanes.in_flight.done(delivery.tag)
    evict(delivery, redis_url, reports)
    assert (state_of(redis, 1), reports.celery, reports.bot) == ("", [], [])


@pytest.mark.parametrize(
    ("failed", "states"), [(0, ("delayed", "waiting")), (2, ("buried", "ready"))], ids=["retried", "buried"]
)
def test_kill_at_the_hard_limit_is_a_failed_attempt(
    lanes: Lanes, redis: Redis, redis_url: str, failed: int, states: tuple[str, str]
) -> None:
    # Given an update whose child process was killed
    delivery = delivered(lanes, failed)
    held = lanes.in_flight.holding()
    update.update.on_hard_limit(delivery)
    # When Celery then rejects its message
    lanes.in_flight.release(delivery.tag, died=True)
    AckFlusher(lanes.in_flight, Store(connect(redis_url))).flush()
    # Then nothing else changes
    assert (state_of(redis, 1), state_of(redis, 2)) == states
    assert [(problem["type"], problem["attempt"]) for problem in problems(redis)] == [
        ("UpdateTimeoutError", failed + 1)
    ]
    assert redis.hget(keys.message("1:1"), "died") in (None, b"0")
    assert lanes.in_flight.holding() == held - 1


# -- the bot of an update


@pytest.mark.parametrize(
    ("tokens", "message_id", "bot_id"),
    [
        (["1:A"], "1:77", 1),
        (["1:A"], "1:malformed:0123456789abcdef", 1),
        (["1:A"], "2:77", None),
        (["1:A"], "9a2bf6f4-1f0c-4d7c-a64a-6e2e6ad7a3f2", 1),
        (["1:A"], "by:hand", 1),
        (["1:A", "2:B"], "2:77", 2),
        (["1:A", "2:B"], "3:77", None),
        (["1:A", "2:B"], "9a2bf6f4-1f0c-4d7c-a64a-6e2e6ad7a3f2", None),
    ],
)
def test_bot_is_found_by_the_id_in_the_message_id(tokens: list[str], message_id: str, bot_id: int | None) -> None:
    found = Bots(map(served, tokens)).of(message_id)
    assert (found and found.settings.bot_id) == bot_id


def test_update_of_an_unknown_bot_stays_in_its_lane(
    lanes: Lanes, redis: Redis, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settlement, "logger", logging.getLogger("refusals"))
    monkeypatch.setattr(settlement, "bots", lambda: Bots([]))
    delivery = delivered(lanes)
    with pytest.raises(Retry) as raised_error:
        settlement.end_unserved(delivery.id, delivery)
    assert (state_of(redis, 1), state_of(redis, 2)) == ("delayed", "waiting")
    assert raised_error.value.when == settlement.UNKNOWN_BOT_AGAIN_AFTER_S
    assert "1:1 belongs to a bot whose token this worker does not have" in caplog.text
    assert not is_held(delivery)


def test_an_interrupted_run_is_not_a_failure_in_its_trace() -> None:
    interruption = Retry(exc=Interrupted("a newer update"), when=0)
    assert settlement.ending_of(interruption) == Ending({"outcome": "interrupted"}, None)


def test_a_task_that_came_through_no_lane_says_what_to_do() -> None:
    with pytest.raises(LookupError, match="an update runs in its lane"):
        update.update({"update_id": 1})
    with pytest.raises(LookupError, match="broadcast 1:news cannot be fed here: it has no lane"):
        broadcasts.feed_broadcast("1:news")
