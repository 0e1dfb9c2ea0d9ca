"""ctx.step with real workers of each framework: a payment is made once, unless its worker dies during it."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from tests.pipeline.conftest import MakePipeline
from tests.pipeline.paying_bot import payments
from tests.support.pipeline import BOT_ID, chats_of, message
from tests.support.waiting import until

#: What a message asks for -> how often it pays. Only a payment in flight depends on the policy.
CASES = {
    "nowhere skip": 1,
    "before skip": 1,
    "after skip": 1,
    "function skip": 1,
    "function repeat": 2,
}
HELD = len(CASES) - 1
CELLS = [
    ("tests.pipeline.paying_bot:plain", "prefork", len(CASES)),
    ("tests.pipeline.paying_bot:telebot", "threads", len(CASES)),
    ("tests.pipeline.paying_bot:aiogram", "threads", len(CASES)),
    ("tests.pipeline.paying_bot:ptb", "threads", len(CASES)),
]


@pytest.mark.first_only
def test_only_a_payment_in_flight_is_repeated(make_pipeline: MakePipeline) -> None:
    # Given a bot of each framework, whose first runs wait at a step of their payment
    pipeline = make_pipeline(QUEUES=len(CELLS), LEASE_SECONDS=2)
    pipeline.poller()
    workers = pipeline.start_workers(CELLS)
    chats = [islice(chats_of(place, len(CELLS)), len(CASES)) for place in range(len(CELLS))]
    asked = [(case, chat) for each in chats for case, chat in zip(CASES, each, strict=True)]
    pushed = pipeline.push(*(message(0, chat, do=case) for case, chat in asked))
    until(lambda: sum(event.what.startswith("at-") for event in pipeline.history) == HELD * len(CELLS))
    until(lambda: pipeline.count("settled") == len(CELLS))  # those that wait nowhere
    # When all workers are killed, and others take over
    for worker in workers:
        worker.kill_all()
    pipeline.start_workers(CELLS)
    pipeline.drained()
    # Then each payment was made as often as expected, always with the same key
    paid = Counter(payments(pipeline.directory))
    keys = [f"{BOT_ID}:{update}/charge/1" for update in pushed]
    assert paid == {key: CASES[case] for key, (case, _) in zip(keys, asked, strict=True)}
    # And each user got the receipt, once; there is none of a payment that was skipped
    said = Counter(call["params"]["text"] for call in pipeline.simulator.calls("sendMessage") if call["ok"])
    receipts = (None if case == "function skip" else key for key, (case, _) in zip(keys, asked, strict=True))
    assert said == Counter(f"{case}: {receipt}" for receipt, (case, _) in zip(receipts, asked, strict=True))
    assert pipeline.count("uncertain") == 2 * len(CELLS)
    assert pipeline.dead() == []
    assert pipeline.leftovers() == []
