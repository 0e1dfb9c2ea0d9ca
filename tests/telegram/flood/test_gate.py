"""The gate: how a call waits, and how a 429 affects other calls. On a real Redis."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from redis import Redis

from celery_lanes.errors import LeaseLost
from celery_lanes.protocol import Command, Store, connect
from chatlanes.telegram.client import Prepared, prepare
from chatlanes.telegram.errors import TooManyRequests
from chatlanes.telegram.flood import Gate, Passage, Rates, RunGate
from chatlanes.telegram.flood import gate as gate_module
from chatlanes.telegram.flood.gate import Ask, GateAnswer, Verdict, WaitMode, is_group, wait_mode
from chatlanes.telegram.flood.parking import Parking, ParkUpdate


class FakeLease:
    """The lease of a run."""

    id = "1:5"
    lost = False

    def is_lost(self) -> bool:
        return self.lost


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with connect(redis_url) as client:
        yield client


def run_gate(*, deadline_s: float | None = None, **given: Any) -> tuple[RunGate, Parking]:
    parking = Parking()
    return RunGate(Gate("1", **given), FakeLease(), parking, deadline_s), parking


def call(chat: Any = 7, method: str = "sendMessage") -> Prepared:
    return prepare(method, {"chat_id": chat})


def asking(redis: Redis) -> Ask:
    def ask(*asked: Command[Any]) -> list[Any]:
        with closing(Store(redis)) as store:
            return store.run_all(*asked)

    return ask


def ask(redis: Redis, passage: Passage) -> GateAnswer | None:
    return passage.held(asking(redis)(*passage.commands()))


def flood(retry_after: float, chat: Any = 7, method: str = "sendMessage") -> TooManyRequests:
    return TooManyRequests(method, chat, "Too Many Requests: retry after …", 429, retry_after)


# -- decisions


@pytest.mark.parametrize(
    ("verdict", "wait_s", "given", "chosen"),
    [
        (Verdict.PAUSE, 5, {}, WaitMode.IN_PLACE),
        (Verdict.PAUSE, 5.1, {}, WaitMode.PARKED),
        (Verdict.BOT, 60, {}, WaitMode.PARKED),
        (Verdict.BOT, 3601, {}, WaitMode.REFUSED),
        (Verdict.PAUSE, 3601, {"parks": False}, WaitMode.REFUSED),
        (Verdict.PAUSE, 60, {"parks": False}, WaitMode.REFUSED),
        (Verdict.RATE, 4, {"left_s": 3}, WaitMode.PARKED),
        (Verdict.RATE, 4, {"longest_wait_s": 3}, WaitMode.PARKED),
        (Verdict.RATE, 9000, {}, WaitMode.PARKED),
        (Verdict.SLOT, 4, {}, WaitMode.IN_PLACE),
        (Verdict.BUSY, 1, {}, WaitMode.PARKED),
        (Verdict.BUSY, 1, {"parks": False}, WaitMode.REFUSED),
    ],
)
def test_how_a_call_waits(verdict: Verdict, wait_s: float, given: dict[str, Any], chosen: WaitMode) -> None:
    assert (
        wait_mode(GateAnswer(verdict, wait_s, 0, False), **{"longest_wait_s": 5, "left_s": math.inf, **given}) is chosen
    )


# -- pauses


def test_429_of_one_worker_pauses_the_others(redis: Redis) -> None:
    # Given a worker whose call to chat 7 was refused
    ours, _ = run_gate()
    passage = ours.passage(call(), asking(redis))
    assert ask(redis, passage) is None
    assert passage.refused(flood(30)).verdict is Verdict.PAUSE
    # When another worker makes calls
    theirs, parking = run_gate()
    held = ask(redis, theirs.passage(call(), asking(redis)))
    # Then calls to this chat are held, and calls to others are not
    assert held is not None
    assert held.verdict is Verdict.PAUSE
    assert 10 < held.wait_s <= 30
    assert ask(redis, theirs.passage(call(8), asking(redis))) is None
    # And its update is parked, as are its later calls
    with pytest.raises(ParkUpdate, match=r"chat 7 waits \d\d\.\d s before sendMessage"):
        theirs.passage(call(), asking(redis)).wait(held)
    assert parking.is_wanted
    assert 10 < parking.delay_s() <= 30
    with pytest.raises(ParkUpdate):
        theirs.passage(call(8), asking(redis))


def test_call_without_a_chat_pauses_its_method(redis: Redis) -> None:
    ours, _ = run_gate()
    ours.passage(prepare("setMyName", {}), asking(redis)).refused(flood(30, None, "setMyName"))
    held = ask(redis, ours.passage(prepare("SETMYNAME", {"name": "x"}), asking(redis)))
    assert held is not None
    assert held.verdict is Verdict.PAUSE
    assert ask(redis, ours.passage(call(), asking(redis))) is None


def test_two_refused_chats_pause_the_bot(redis: Redis) -> None:
    ours, _ = run_gate()
    assert ours.passage(call(7), asking(redis)).refused(flood(30)).verdict is Verdict.PAUSE
    accepted = ours.passage(call(9), asking(redis))
    assert ask(redis, accepted) is None
    accepted.accepted()
    assert ours.passage(call(8), asking(redis)).refused(flood(20, 8)).verdict is Verdict.PAUSE
    assert ours.passage(call(6), asking(redis)).refused(flood(10, 6)).verdict is Verdict.BOT
    held = ask(redis, ours.passage(call(9), asking(redis)))
    assert held is not None
    assert (held.verdict, round(held.wait_s)) == (Verdict.BOT, 10)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("answerPreCheckoutQuery", {"pre_checkout_query_id": "p", "ok": True}),
        ("answerShippingQuery", {"shipping_query_id": "s", "ok": False}),
        ("answerChatJoinRequestQuery", {"chat_join_request_query_id": "j", "result": "approve"}),
        ("sendChatJoinRequestWebApp", {"chat_join_request_query_id": "j", "web_app_url": "https://a.example"}),
    ],
)
def test_an_urgent_answer_passes_a_pause_of_the_bot(redis: Redis, method: str, params: dict[str, Any]) -> None:
    ours, _ = run_gate()
    redis.set("flood:1", 1, px=60_000)
    checkout = prepare(method, params)
    assert ask(redis, ours.passage(call(), asking(redis))) is not None
    assert ask(redis, ours.passage(checkout, asking(redis))) is None
    # But not after a refusal of its own
    ours.passage(checkout, asking(redis)).refused(flood(30, None, method))
    held = ask(redis, ours.passage(checkout, asking(redis)))
    assert held is not None
    assert held.verdict is Verdict.PAUSE


def test_acceptance_without_a_pause_sends_no_command(redis: Redis) -> None:
    ours, _ = run_gate()
    passage = ours.passage(call(), asking(redis))
    assert ask(redis, passage) is None
    before = redis.info("commandstats")
    passage.accepted()
    assert redis.info("commandstats").get("cmdstat_evalsha") == before["cmdstat_evalsha"]


def test_short_wait_happens_in_the_handler(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "SHORTEST_S", 0.01)
    ours, parking = run_gate()
    passage = ours.passage(call(), asking(redis))
    passage.wait(passage.refused(flood(0.05)))
    assert ask(redis, passage) is None
    assert not parking.is_wanted


def test_flood_wait_limits_all_waits_of_a_call(redis: Redis) -> None:
    ours, _ = run_gate(longest_wait_s=0.1)
    passage = ours.passage(call(), asking(redis))
    passage.wait(GateAnswer(Verdict.PAUSE, 0.06, 0, True))
    with pytest.raises(ParkUpdate):
        passage.wait(GateAnswer(Verdict.PAUSE, 0.06, 0, True))


def test_wait_beyond_update_timeout_parks(redis: Redis) -> None:
    ours, _ = run_gate(deadline_s=time.monotonic() + 2)
    with pytest.raises(ParkUpdate):
        ours.passage(call(), asking(redis)).wait(GateAnswer(Verdict.PAUSE, 3, 0, True))


def test_wait_of_hours_is_a_refusal(redis: Redis) -> None:
    """Otherwise the chat of the update would be blocked for a day."""
    ours, parking = run_gate()
    passage = ours.passage(prepare("setMyName", {}), asking(redis))
    with pytest.raises(TooManyRequests, match=r"setMyName waits 86400\.0 s before setMyName") as refused:
        passage.wait(passage.refused(flood(86_400, None, "setMyName")))
    assert refused.value.retry_after == 86_400
    assert not parking.is_wanted


def test_hook_is_refused_instead_of_parked(redis: Redis) -> None:
    ours, parking = run_gate()
    with pytest.raises(ParkUpdate):
        parking.park("a flood wait", 60)
    hook = ours.for_hook().passage(call(), asking(redis))
    with pytest.raises(TooManyRequests):
        hook.wait(GateAnswer(Verdict.PAUSE, 60, 0, True))


def test_wait_ends_without_a_lease_or_at_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    held, parking = FakeLease(), Parking()
    held.lost = True
    with pytest.raises(LeaseLost):
        RunGate(Gate("1"), held, parking).wait_in_place("a flood wait", 60)
    held.lost = False
    monkeypatch.setattr(gate_module, "is_stopping", lambda: True)
    with pytest.raises(ParkUpdate):
        RunGate(Gate("1"), held, parking).wait_in_place("a flood wait", 60)
    assert 40 < parking.delay_s() <= 60


# -- rates


def test_slot_is_taken_once_and_used_after_its_wait(redis: Redis) -> None:
    # Given a bot with 2 messages per second
    ours, _ = run_gate(rates=Rates(per_bot=2))
    assert ask(redis, ours.passage(call(1), asking(redis))) is None
    waits = ours.passage(call(2), asking(redis))
    held = ask(redis, waits)
    assert held is not None
    assert held.verdict is Verdict.SLOT
    # When the call has waited
    waits.wait(held)
    before = redis.hgetall("flood-rate:1")
    # Then it passes, without taking another slot
    assert ask(redis, waits) is None
    assert redis.hgetall("flood-rate:1") == before


def test_pause_after_a_granted_slot_applies(redis: Redis) -> None:
    ours, _ = run_gate(rates=Rates(per_bot=2))
    assert ask(redis, ours.passage(call(1), asking(redis))) is None
    waits = ours.passage(call(2), asking(redis))
    held = ask(redis, waits)
    assert held is not None
    waits.wait(held)
    ours.passage(call(2), asking(redis)).refused(flood(30, 2))
    held = ask(redis, waits)
    assert held is not None
    assert held.verdict is Verdict.PAUSE


def test_recorded_call_takes_no_slot(redis: Redis) -> None:
    """Except the first one, because the gate is asked before the journal has answered."""
    # Given a bot with one message per 100 s, and a run whose calls are all answered from the journal
    ours, _ = run_gate(rates=Rates(per_bot=0.01), longest_wait_s=1000)
    for _ in range(5):
        replayed = ours.passage(call(), asking(redis))
        asking(redis)(*replayed.commands())
        replayed.replayed()
    # When it makes new calls
    waits = [ask(redis, ours.passage(call(), asking(redis))) for _ in range(2)]
    # Then they get the second and the third slot
    assert [round(wait.wait_s / 100) for wait in waits if wait] == [1, 2]


@pytest.mark.parametrize(
    ("method", "params", "messages"),
    [
        ("sendMessage", {"chat_id": 7}, 1),
        ("editMessageText", {"chat_id": 7}, 1),
        ("sendMediaGroup", {"chat_id": 7, "media": [1, 2, 3]}, 3),
        ("forwardmessages", {"chat_id": 7, "message_ids": [1, 2]}, 2),
        ("copyMessages", {"chat_id": 7, "message_ids": "[1,2]"}, 2),
        ("sendMediaGroup", {"chat_id": 7, "media": "[…"}, 1),
        ("sendMediaGroup", {"chat_id": 7, "media": None}, 1),
        ("sendChatAction", {"chat_id": 7}, 0),
        ("getChat", {"chat_id": 7}, 0),
        ("answerCallbackQuery", {"callback_query_id": "q"}, 0),
    ],
)
def test_cost_of_a_call(method: str, params: dict[str, Any], messages: int) -> None:
    assert prepare(method, params).messages == messages


@pytest.mark.parametrize(
    ("chat", "is_one"), [(7, False), ("7", False), (-7, True), ("-7", True), ("@news", True), (None, False)]
)
def test_group_chats(chat: Any, is_one: bool) -> None:
    assert is_group(chat) is is_one
