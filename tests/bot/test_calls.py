"""Bot API calls: a later run of an update repeats only unrecorded calls, and a run without a lease makes none."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from redis import Redis

from celery_lanes import Delivery, Group, Interrupted, Lanes, LeaseLost, install
from celery_lanes.embedded_server import start_server
from celery_lanes.leases.reports import GONE
from celery_lanes.protocol import Kind, NewMessage, Outcome, connect, keys
from celery_lanes.protocol.scripts import script
from celery_lanes.runtime import clock
from chatlanes.bot.calls.run_calls import Calls, LaneCalls, fingerprint
from chatlanes.bot.context import Context
from chatlanes.bot.coroutines import awaited
from chatlanes.telegram.client import BotApi, prepare
from chatlanes.telegram.errors import BadRequest, BotApiError, ChatMigrated, NetworkError, ServerError, TooManyRequests
from chatlanes.telegram.flood import Gate, Passage, RunGate
from chatlanes.telegram.flood.keys import FLOOD
from tests.support.http_server import Answer, HttpServer, ReceivedRequest

LEASE_MS = 60_000
ID = "1:1"


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with connect(redis_url) as client:
        yield client


@pytest.fixture
def lanes(redis_url: str) -> Iterator[Lanes]:
    """Lanes of a new app, with one update."""
    with Celery("test", broker=redis_url, set_as_current=False) as app:
        lanes = install(app)
        lanes.store.append([NewMessage(ID, "q", "{}", ["1/chat:7"])])
        yield lanes


@pytest.fixture
def run(lanes: Lanes, api: BotApi) -> Callable[..., CallsOfRun]:
    """Returns a function that starts the next run of the update."""

    return lambda uncertain="repeat": begin_run(lanes, api, uncertain)


def begin_run(
    lanes: Lanes, api: BotApi, uncertain: str = "repeat", *, queue: str = "q", is_interruptible: bool = False
) -> CallsOfRun:
    [leased] = lanes.store.turn([queue], holder="test", lease_ms=LEASE_MS, room=1).leased
    [held] = lanes.in_flight.finish_fetch([leased], clock.now_s(), suspects_wait=False)
    lanes.in_flight.claim(held.tag, starts=True)
    delivery = Delivery(
        lanes,
        held.tag,
        held.deadline_s,
        failed=leased.failed,
        died=leased.died,
        interrupted=leased.interrupted,
        is_interruptible=is_interruptible,
    )
    return CallsOfRun(lanes, delivery, LaneCalls(api, delivery, uncertain, lambda: gate_of(delivery)))  # type: ignore[arg-type]


def gate_of(delivery: Delivery) -> RunGate:
    """It does not park: a call that would have to wait fails, as in a hook."""
    return RunGate(Gate("1", longest_wait_s=0.0), delivery, None)


class CallsOfRun:
    """One run, and the ways it may end."""

    def __init__(self, lanes: Lanes, delivery: Delivery, calls: Calls) -> None:
        self.lanes = lanes
        self.delivery = delivery
        self.calls = calls

    def call(self, text: str, **more: Any) -> Any:
        return self.calls.call("sendMessage", chat_id=7, text=text, **more)

    def fails(self) -> None:
        """The handler raises."""
        assert self.delivery.retry(delay_s=0, problem={"type": "E"}) is Outcome.DONE
        self.lanes.store.sweep(LEASE_MS)

    def dies(self) -> None:
        """Its process dies, and the update is released."""
        self.lanes.in_flight.reports.send(GONE, self.delivery.tag)
        assert self.lanes.store.release([(ID, self.delivery.fence)], died=True) == []


def texts(web: HttpServer) -> list[str]:
    return [asked.json["text"] for asked in web.asked]


def echo(asked: ReceivedRequest) -> Answer:
    return Answer({"ok": True, "result": {"message_id": 1, "text": asked.json["text"]}})


def refusing(code: int, **parameters: Any) -> Answer:
    return Answer({"ok": False, "error_code": code, "description": "no", "parameters": parameters}, status=code)


def test_recorded_call_is_made_once(web: HttpServer, run: Any) -> None:
    # Given a run that made two calls and failed
    web.answer = Answer(b'{"ok": true, "result": {"text": "half an emoji: \\ud83d", "id": 9007199254740993}}')
    first = run()
    given = [first.call("a"), first.call("b")]
    first.fails()
    # When the update runs again
    second = run()
    # Then it gets the same results, and only the new call is sent
    assert [second.call("a"), second.call("b")] == given
    assert second.call("c") == given[0] == {"text": "half an emoji: \ud83d", "id": 9007199254740993}
    assert texts(web) == ["a", "b", "c"]


def test_finished_calls_are_recorded_before_the_update_is_released(web: HttpServer, run: Any, redis: Redis) -> None:
    first = run()
    for text in "abc":
        first.call(text)
    first.fails()
    noted = redis.hgetall(keys.journal(ID))
    assert {position: noted[position].split()[0] for position in (b"1", b"2", b"3")} == dict.fromkeys(
        (b"1", b"2", b"3"), b"done"
    )


def test_call_waits_for_one_reply_of_redis(web: HttpServer, run: Any, redis: Redis) -> None:
    """The reply to the end of a call is read with that to the beginning of the next."""
    first = run()
    first.call("a")
    before = redis.info("commandstats")
    for _ in range(10):
        first.call("b")
    first.delivery.journal.confirm()
    after = redis.info("commandstats")
    # For each call: the gate, its beginning and its end.
    assert after["cmdstat_evalsha"]["calls"] - before["cmdstat_evalsha"]["calls"] <= 31
    assert len(first.lanes.store._idle) == 1


def test_handler_without_calls_sends_nothing_to_redis(run: Any, redis: Redis) -> None:
    only = run()
    before = redis.info("stats")["total_commands_processed"]
    only.delivery.journal.confirm()
    assert redis.info("stats")["total_commands_processed"] - before == 1
    assert redis.exists(keys.journal(ID)) == 0


UNCERTAIN: dict[str, Callable[[HttpServer], object]] = {
    "no answer": lambda web: setattr(web, "answering", lambda asked: None),
    "a server error": lambda web: setattr(web, "answer", refusing(502)),
    "no Bot API": lambda web: setattr(web, "answer", Answer(b"<html>", status=200)),
}


@pytest.mark.parametrize("how", UNCERTAIN)
@pytest.mark.parametrize(("policy", "own", "sent"), [("repeat", None, 2), ("skip", None, 1), ("repeat", "skip", 1)])
def test_call_without_an_outcome_is_repeated_or_skipped(
    web: HttpServer, run: Any, caplog: pytest.LogCaptureFixture, how: str, policy: str, own: str | None, sent: int
) -> None:
    # Given a call whose outcome is unknown
    UNCERTAIN[how](web)
    first = run()
    with pytest.raises(BotApiError) as failed:
        first.call("a")
    assert failed.value.uncertain
    first.fails()
    # When the update runs again
    web.answering = echo
    second = run(policy)
    result = second.call("a", uncertain=own)
    # Then the call is made again, or returns None
    assert result == ({"message_id": 1, "text": "a"} if sent == 2 else None)
    assert second.call("b")["text"] == "b"
    assert texts(web).count("a") == sent
    assert "was begun by a run that left no outcome" in caplog.text


def test_call_in_flight_at_a_death_stays_uncertain(web: HttpServer, run: Any) -> None:
    first = run()
    first.calls.journal.begin("sendMessage", fingerprint(prepare("sendMessage", {"chat_id": 7, "text": "a"})))
    first.dies()
    for _ in range(2):
        skipping = run("skip")
        assert skipping.call("a") is None
        skipping.dies()
    repeating = run("repeat")
    assert repeating.call("a") is True
    assert texts(web) == ["a"]


def test_caught_refusal_is_replayed(web: HttpServer, run: Any) -> None:
    # Given a run whose call was refused, that continued, and failed later
    web.answer = refusing(400, migrate_to_chat_id=-1007)
    first = run()
    with pytest.raises(ChatMigrated) as refused:
        first.call("a")
    web.answering = echo
    first.call("b")
    first.fails()
    # When the update runs again
    second = run()
    with pytest.raises(ChatMigrated) as replayed:
        second.call("a")
    # Then it gets the same error, and nothing was sent
    assert (vars(replayed.value), str(replayed.value)) == (vars(refused.value), str(refused.value))
    assert second.call("b")["text"] == "b"
    assert texts(web) == ["a", "b"]


def test_refusal_that_ended_the_run_is_retried(web: HttpServer, run: Any) -> None:
    first = run()
    web.answer = refusing(400)
    with pytest.raises(BadRequest):
        first.call("a")
    first.fails()
    web.answer = Answer()
    assert run().call("a") is True
    assert texts(web) == ["a", "a"]


def test_429_and_unsent_calls_are_not_recorded(web: HttpServer, run: Any, redis: Redis) -> None:
    first = run("skip")
    web.answer = refusing(429, retry_after=1)
    with pytest.raises(TooManyRequests):
        first.call("a")
    first.fails()
    redis.delete(*redis.scan_iter(f"{FLOOD}*"))  # the pause is over
    second = run("skip")
    away = Calls(BotApi("http://127.0.0.1:1", "1:token"), second.calls.journal, second.calls.gate)
    with pytest.raises(NetworkError):
        away.call("sendMessage", chat_id=7, text="a")
    second.fails()
    web.answer = Answer()
    assert run("skip").call("a") is True


def test_diverging_calls_are_logged_once_and_made(web: HttpServer, run: Any, caplog: pytest.LogCaptureFixture) -> None:
    first = run()
    for text in "abcd":
        first.call(text)
    first.fails()
    second = run()
    for text in "aBcD":
        second.call(text)
    second.fails()
    third = run()
    for text in "aBcD":
        third.call(text)
    assert texts(web) == [*"abcd", *"BcD"]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "call 2 is sendMessage:" in warnings[0]


def test_reading_calls_are_repeated_and_not_recorded(web: HttpServer, run: Any, redis: Redis) -> None:
    first = run()
    first.calls.call("getMe")
    first.call("a")
    first.fails()
    second = run()
    second.calls.call("getMe")
    second.calls.call("getChat", chat_id=7)
    second.call("a")
    assert [asked.path.rpartition("/")[2] for asked in web.asked] == ["getMe", "sendMessage", "getMe", "getChat"]


@pytest.mark.parametrize("method", ["sendChatAction", "sendMessageDraft", "sendRichMessageDraft"])
def test_what_vanishes_by_itself_is_sent_in_every_run(web: HttpServer, run: Any, method: str) -> None:
    first = run()
    first.calls.call(method, chat_id=7)
    first.call("a")
    first.fails()
    second = run()
    second.calls.call(method, chat_id=7)
    second.call("a")
    assert [asked.path.rpartition("/")[2] for asked in web.asked] == [method, "sendMessage", method]


def test_calls_of_a_coroutine_are_numbered_in_source_order(web: HttpServer, run: Any) -> None:
    async def handle(ctx: Any, *texts: str, reads: bool) -> None:
        if reads:
            await ctx.call("getMe")
        await asyncio.gather(*(ctx.reply(text) for text in texts))

    def attempt(one: CallsOfRun, reads: bool) -> None:
        ctx = Context({"update_id": 1, "message": {"chat": {"id": 7}}}, one.calls)
        asyncio.run(awaited(partial(handle, reads=reads), ctx, *"abc"))

    # Given a coroutine that read something and made three calls concurrently
    first = run()
    attempt(first, reads=True)
    first.fails()
    # When it runs again without the reading call
    attempt(run(), reads=False)
    # Then no message is sent twice
    sent = [asked.json["text"] for asked in web.asked if asked.path.endswith("sendMessage")]
    assert sorted(sent) == ["a", "b", "c"]


def test_calls_of_hooks_are_recorded_separately(web: HttpServer, run: Any) -> None:
    # Given a run with one call of its handler and one of its hook
    first = run()
    first.call("a")
    first.calls.in_series("error1/").call("sendMessage", chat_id=7, text="sorry")
    first.fails()
    # When the next run makes one call more and fails, and its hook dies and runs again
    second = run()
    second.call("a")
    second.call("b")
    second.calls.in_series("error2/").call("sendMessage", chat_id=7, text="sorry")
    second.dies()
    third = run()
    third.calls.in_series("error2/").call("sendMessage", chat_id=7, text="sorry")
    # Then the hook's call was made once per attempt
    assert texts(web) == ["a", "sorry", "b", "sorry"]


# -- without a lease


def test_zombie_sends_nothing(web: HttpServer, run: Any, lanes: Lanes) -> None:
    # Given a run whose update has been leased to another run
    zombie = run()
    zombie.call("a")
    lanes.store.release([(ID, zombie.delivery.fence)])
    newer = run()
    # When it makes a call
    with pytest.raises(LeaseLost, match="the lease of 1:1 is over; sendMessage was not called"):
        zombie.call("b")
    # Then nothing is sent, now or later, and the newer run is not affected
    with pytest.raises(LeaseLost):
        zombie.calls.call("getMe")
    assert zombie.delivery.is_lost()
    newer.call("a")
    newer.call("b")
    assert texts(web) == ["a", "b"]


@pytest.mark.parametrize("method", ["sendMessage", "getMe"])
def test_process_frozen_before_sending_checks_its_lease(
    web: HttpServer, run: Any, lanes: Lanes, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    # Given a run that waits at the gate for longer than its lease, and a newer run
    zombie = run()

    class Freezes(Passage):
        def held(self, answers: Any) -> None:
            lanes.store.release([(ID, zombie.delivery.fence)])
            now_s = clock.now_s()
            monkeypatch.setattr(clock, "now_s", lambda: now_s + 3600)

    gate = gate_of(zombie.delivery)
    monkeypatch.setattr(gate, "passage", lambda call, ask: Freezes(gate, call, ask))
    frozen = Calls(zombie.calls.api, zombie.calls.journal, gate)
    with pytest.raises(LeaseLost, match=f"{method} was not called"):
        frozen.call(method, chat_id=7)
    assert web.asked == []


def test_slow_process_with_a_valid_lease_sends(web: HttpServer, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = run()
    now_s = clock.now_s()
    monkeypatch.setattr(clock, "now_s", lambda: now_s + 3600)
    assert slow.calls.call("getMe") is True
    assert slow.call("a") is True


# -- a run that a newer update has ended

TALK = Group("talk", quiet_ms=0, max_wait_ms=0, most=9, interrupts=True)


@pytest.mark.parametrize(
    "command",
    [
        lambda run: run.call("b"),
        lambda run: run.delivery.read([]),
        lambda run: run.delivery.check(),
        lambda run: run.delivery.shield(),
    ],
)
def test_what_is_refused_before_the_notice_of_an_interrupt_raises_interrupted(
    web: HttpServer, lanes: Lanes, api: BotApi, command: Callable[[CallsOfRun], object]
) -> None:
    # Given a run that has made a call, and whose process gets no notices
    web.answer = Answer({"ok": True, "result": {}})
    talk = NewMessage("1:2", "p", "{}", ["1/chat:8"], group=TALK)
    lanes.store.append([talk])
    ended: list[str] = []
    run = begin_run(lanes, api, queue="p", is_interruptible=True)
    run.delivery.on_interrupt(lambda: ended.append("ended"))
    run.call("a")
    # When a newer update ends it
    lanes.store.append([talk._replace(id="1:3")])
    # Then the next command reports it, and the handler is notified once
    with pytest.raises(Interrupted):
        command(run)
    with pytest.raises(Interrupted):
        run.call("c")
    assert (texts(web), ended, run.delivery.is_interrupted) == (["a"], ["ended"], True)


def test_a_run_whose_lease_expired_was_not_interrupted(web: HttpServer, lanes: Lanes, api: BotApi) -> None:
    lanes.store.append([NewMessage("1:2", "p", "{}", ["1/chat:8"], group=TALK)])
    run = begin_run(lanes, api, queue="p", is_interruptible=True)
    assert lanes.store.release([("1:2", run.delivery.fence)], died=True) == []
    with pytest.raises(LeaseLost) as lost:
        run.call("b")
    assert type(lost.value) is LeaseLost
    assert not run.delivery.is_interrupted


# -- fingerprints


def prints(*params: dict[str, Any]) -> set[str]:
    return {fingerprint(prepare("sendPhoto", each)) for each in params}


def test_fingerprint_covers_the_sent_parameters(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"cat")
    (tmp_path / "c.png").write_bytes(b"dog")
    # The same content from different sources
    photos = (b"cat", tmp_path / "a.png", tmp_path / "b.png", io.BytesIO(b"cat"))
    same = ({"chat_id": 7, "photo": photo} for photo in photos)
    assert len(prints(*same)) == 1
    # Any other difference gives another fingerprint
    others = (
        {"chat_id": 7, "photo": b"cat"},
        {"chat_id": 7, "photo": tmp_path / "c.png"},
        {"chat_id": 8, "photo": b"cat"},
        {"chat_id": 7, "video": b"cat"},
        {"chat_id": 7, "photo": "cat"},
        {"chat_id": 7, "photo": "cat", "caption": ""},
        {"chat_id": 7, "media": [{"media": b"cat"}, {"media": b"dog"}]},
        {"chat_id": 7, "media": [{"media": b"dog"}, {"media": b"cat"}]},
    )
    assert len(prints(*others)) == len(others)
    assert prints({"chat_id": 7, "photo": None}) == prints({"chat_id": 7})


@pytest.mark.parametrize("params", [{"text": object()}, {"photo": Path("/nowhere/at/all")}, {"text": float("nan")}])
def test_invalid_call_is_not_begun(run: Any, redis: Redis, params: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError, OSError)):
        run().calls.call("sendMessage", **params)
    assert redis.exists(keys.journal(ID)) == 0


def test_invalid_policy_is_refused(run: Any) -> None:
    with pytest.raises(ValueError, match="uncertain='never': use 'repeat' or 'skip'"):
        run().call("a", uncertain="never")


def test_long_result_is_not_stored(
    web: HttpServer, run: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("chatlanes.bot.calls.journal.LONGEST_OUTCOME", 100)
    web.answer = Answer({"ok": True, "result": "x" * 100})
    first = run()
    assert len(first.call("a")) == 100
    first.fails()
    assert run().call("a") is None
    assert "too long to store" in caplog.text
    assert len(web.asked) == 1


# -- failures of Redis


def test_broken_connection_is_replaced(web: HttpServer, run: Any, redis: Redis, lanes: Lanes) -> None:
    # Given a finished call whose reply from Redis was not read
    first = run()
    first.call("a")
    # When the connection breaks, and Redis forgets the scripts
    redis.client_kill_filter(_type="normal", skipme=True)
    redis.script_flush()
    # Then the next call succeeds, and the first one is recorded
    first.call("b")
    first.fails()
    second = run()
    second.call("a")
    second.call("b")
    assert texts(web) == ["a", "b"]


def test_end_refused_by_redis_is_repeated(web: HttpServer, run: Any, redis: Redis, lanes: Lanes) -> None:
    first = run()
    first.calls.journal.begin("sendMessage", "x")
    redis.script_flush()  # the end does not find its script
    first.delivery.journal.end("1", "sendMessage:x", Kind.DONE)
    first.fails()
    assert redis.hget(keys.journal(ID), "1").split()[0] == b"done"


def test_an_end_refused_by_redis_is_repeated_before_the_next_call(run: Any, redis: Redis) -> None:
    # Given a run with a call, whose connection has loaded the script of an end
    first = run()
    first.calls.journal.begin("sendMessage", "x")
    first.delivery.journal.end("1", "sendMessage:x", Kind.DONE)
    # When Redis has forgotten that script at the end of the next call, but not the script of a begin
    first.calls.journal.begin("sendMessage", "y")
    redis.script_flush()
    redis.script_load(script("begin").source)
    first.delivery.journal.end("2", "sendMessage:y", Kind.DONE)
    # Then the end is recorded before a third call is made, during which the process may be killed
    first.calls.journal.begin("sendMessage", "z")
    assert redis.hget(keys.journal(ID), "2").split()[0] == b"done"


def test_call_waits_for_a_restarting_redis(
    web: HttpServer, api: BotApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a run with a call, on its own Redis
    server = start_server(tmp_path)
    with Celery("test", broker=server.url, set_as_current=False) as app:
        lanes = install(app)
        lanes.store.append([NewMessage(ID, "q", "{}", ["1/chat:7"])])
        only = begin_run(lanes, api)
        only.call("a")
        # When Redis is killed and restarted while the handler makes a call
        server.kill()
        with ThreadPoolExecutor(1) as meanwhile:
            restarted = meanwhile.submit(start_server, tmp_path, port=server.port)
            only.call("b")
        with restarted.result():
            # Then no call was forgotten
            only.fails()
            again = begin_run(lanes, api)
            for text in "abc":
                again.call(text)
    assert texts(web) == ["a", "b", "c"]


def test_threads_of_a_handler_share_the_journal(web: HttpServer, run: Any) -> None:
    # Given a run whose threads make many calls concurrently
    def call_all(one: CallsOfRun) -> None:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda _: one.call("a"), range(64)))

    first = run()
    call_all(first)
    first.fails()
    # When the update runs again
    call_all(run())
    # Then each was made once
    assert texts(web) == ["a"] * 64


def test_threads_of_a_handler_share_one_gate(run: Any, api: BotApi) -> None:
    made: list[RunGate] = []
    delivery = run().delivery

    def gate() -> RunGate:
        mine = gate_of(delivery)
        made.append(mine)
        if len(made) == 1:  # another thread creates one meanwhile
            assert calls.gate is made[1]
        return mine

    calls = LaneCalls(api, delivery, "repeat", gate)
    assert calls.gate is calls.gate is made[1]


def test_calls_without_a_lane_are_not_recorded(web: HttpServer, api: BotApi) -> None:
    calls = Calls(api)
    assert [calls.call("sendMessage", text="a", uncertain="skip"), calls.call("getMe")] == [True, True]
    assert json.loads(web.asked[0].body) == {"text": "a"}
    web.answer = refusing(502)
    with pytest.raises(ServerError):
        calls.call("sendMessage", text="a")
