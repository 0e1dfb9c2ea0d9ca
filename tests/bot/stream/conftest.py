"""Runs of an update with a lane, a gate and a simulated Bot API; and the fixtures of the pipeline tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from redis import Redis

from celery_lanes import Delivery, Lanes, install
from celery_lanes.leases.reports import GONE
from celery_lanes.protocol import NewMessage, Outcome, connect
from celery_lanes.runtime import clock
from chatlanes.bot.calls.run_calls import Calls, LaneCalls
from chatlanes.bot.context import Context
from chatlanes.bot.stream import sender
from chatlanes.telegram.client import BotApi
from chatlanes.telegram.flood import Gate, Parking, RunGate
from chatlanes_sandbox.simulator import Simulator
from tests.pipeline.conftest import make_pipeline, simulated, simulator
from tests.support.pipeline import BOT_ID, TOKEN, message
from tests.support.shown import shown
from tests.support.waiting import until

__all__ = ["make_pipeline", "simulated", "simulator"]

ID = f"{BOT_ID}:1"
LEASE_MS = 60_000


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Edits are due after 50 ms instead of seconds."""
    monkeypatch.setattr(sender, "PRIVATE_S", 0.05)
    monkeypatch.setattr(sender, "GROUP_S", 0.05)


class Run:
    """One run of an update of chat 7, and the ways it may end."""

    def __init__(self, lanes: Lanes, simulator: Simulator, chat: int, longest_wait_s: float) -> None:
        [leased] = lanes.store.turn(["q"], holder="test", lease_ms=LEASE_MS, room=1).leased
        [held] = lanes.in_flight.finish_fetch([leased], clock.now_s(), suspects_wait=False)
        lanes.in_flight.claim(held.tag, starts=True)
        self.lanes, self.parking = lanes, Parking()
        self.delivery = Delivery(lanes, held.tag, held.deadline_s, failed=leased.failed, died=leased.died)
        gate = RunGate(Gate(str(BOT_ID), longest_wait_s=longest_wait_s), self.delivery, self.parking)
        self.calls: Calls = LaneCalls(BotApi(simulator.url, TOKEN), self.delivery, "repeat", lambda: gate)
        self.ctx = Context({**message(1, chat, user=5 if chat < 0 else None), "update_id": 1}, self.calls)

    def fails(self) -> None:
        """The handler raises."""
        assert self.delivery.retry(delay_s=0, problem={"type": "E"}) is Outcome.DONE
        self.lanes.store.sweep(LEASE_MS)

    def is_parked(self) -> None:
        assert self.delivery.park(delay_s=0) is Outcome.DONE
        self.lanes.store.sweep(LEASE_MS)

    def dies(self) -> None:
        """Its process dies, and the update is released."""
        self.lanes.in_flight.reports.send(GONE, self.delivery.tag)
        assert self.lanes.store.release([(ID, self.delivery.fence)], died=True) == []


class Chat:
    """A chat as its user sees it, and the runs of an update in it."""

    def __init__(self, lanes: Lanes, simulator: Simulator, redis: Redis, chat: int) -> None:
        self.lanes, self.simulator, self.redis, self.id = lanes, simulator, redis, chat

    def run(self, longest_wait_s: float = 5.0) -> Run:
        return Run(self.lanes, self.simulator, self.id, longest_wait_s)

    @property
    def messages(self) -> dict[int, str]:
        return shown(self.simulator, self.id)

    def shows(self, text: str) -> None:
        """Wait until a message has this text."""
        until(lambda: text in self.messages.values())

    def made(self, method: str = "") -> list[dict[str, Any]]:
        """The parameters of the calls made, without those that were refused."""
        return [call["params"] for call in self.simulator.calls(method or None) if call["ok"]]


@pytest.fixture
def chat(redis_url: str, simulator: Simulator, quick: None) -> Iterator[Chat]:
    """A private chat with one update."""
    with Celery("test", broker=redis_url, set_as_current=False) as app, connect(redis_url) as redis:
        lanes = install(app)
        lanes.store.append([NewMessage(ID, "q", "{}", [f"{BOT_ID}/chat:7"])])
        yield Chat(lanes, simulator, redis, 7)
