"""python -m bench.load.limited_calls: one of several processes that send as fast as the gate permits.

Each thread is a handler that makes call after call; each passed call is recorded with the time of its slot, by Redis'
clock. Nothing is sent. The argument is one JSON object (RatePlan); the records are written at SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import orjson

from celery_lanes.protocol import Store, connect
from chatlanes.telegram.client import prepare
from chatlanes.telegram.flood import Gate, Parking, ParkUpdate, Rates, RunGate

BEGUN = "first slot granted"


@dataclass(frozen=True)
class RatePlan:
    """`rates` as Rates takes them; each thread calls one of the chats repeatedly."""

    url: str
    grants: str
    chats: list[int]
    threads: int = 8
    patience_s: float = 5.0
    rates: dict[str, float] = field(default_factory=dict)

    def text(self) -> str:
        return orjson.dumps(asdict(self)).decode()


class Nothing:
    """The holder of a run that never loses its lease."""

    id = "bench"

    def is_lost(self) -> bool:
        return False


def main() -> None:
    plan = RatePlan(**orjson.loads(sys.argv[1]))
    grants: list[tuple[int, int]] = []
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    for number in range(plan.threads):
        Thread(target=_call, args=(plan, number, grants), daemon=True).start()
    stop.wait()
    Path(plan.grants).write_bytes(orjson.dumps(list(grants)))


def _call(plan: RatePlan, number: int, grants: list[tuple[int, int]]) -> None:
    gate = Gate("1", Rates(**plan.rates), plan.patience_s)
    chat = plan.chats[number % len(plan.chats)]
    with connect(plan.url) as client:
        store = Store(client)

        def ask(*asked: Any) -> list[Any]:
            return store.run_all(*asked)

        while True:
            if at_us := _slot(gate, chat, ask):
                grants.append((at_us, chat))
                if len(grants) == 1:
                    print(BEGUN, flush=True)


def _slot(gate: Gate, chat: int, ask: Any) -> int | None:
    """The time at which the call may be sent; None if its update was parked (returns after the delay)."""
    parking = Parking()
    run_gate = RunGate(gate, Nothing(), parking)  # type: ignore[arg-type]
    passage = run_gate.passage(prepare("sendMessage", {"chat_id": chat}), ask)
    slot_us = 0
    while True:
        answers = ask(*passage.commands())
        held = passage.held(answers)
        if held is None:
            return slot_us or int(answers[0][2])
        try:
            passage.wait(held)
        except ParkUpdate:
            time.sleep(parking.delay_s())
            return None
        slot_us = held.at_us if passage.has_slot else 0


if __name__ == "__main__":
    main()
