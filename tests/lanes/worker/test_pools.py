"""Every pool runs the messages of each lane once, in order, and one at a time."""

from __future__ import annotations

import random

from tests.support.lab import Lab, numbered


def test_a_thousand_messages_run_once_and_in_order(lab: Lab, pool: tuple[str, int]) -> None:
    # Given 1,000 messages in 100 lanes, every tenth of them in two lanes
    rng = random.Random(7)
    lab.publish_many(numbered(1000, lambda n: rng.sample([f"lane:{i}" for i in range(100)], 2 if n % 10 == 0 else 1)))
    # When one worker runs them
    worker = lab.worker(*pool)
    lab.drained()
    worker.stop()
    # Then each ran once, in order, alone in its lanes; and none of their keys is left in Redis
    lab.check_once_each()
    assert lab.count("settled") == 1000
    assert lab.leases() == []
    assert not lab.client.keys("lanes:message:*") + lab.client.keys("lanes:body:*") + lab.client.keys("lanes:lane:*")
