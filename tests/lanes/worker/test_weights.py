"""Weights: while several groups of queues have messages, workers take them as often as their weights say."""

from __future__ import annotations

import pytest

import celery_lanes as lanes
from tests.support.history import ids
from tests.support.lab import LabMaker


@pytest.mark.parametrize(("pool", "slots"), [("solo", 1), ("prefork", 2), ("threads", 4)])
def test_a_flood_of_one_tenant_leaves_the_other_its_share(make_lab: LabMaker, pool: str, slots: int) -> None:
    # Given a tenant whose queue has weight 3, and one that floods its queue before
    lab = make_lab(weights={"large": 3, "small": 1})
    for tenant, count in (("small", 400), ("large", 120)):
        for number in range(count):
            lab.send(f"{tenant}:{number}", [f"{tenant}:{number}"], queue=tenant)
    # When two workers read both
    for _ in range(2):
        lab.worker(pool, slots, "-Q", "large,small")
    lab.drained()
    # Then three of four were of the first tenant. Of its last ones, one may wait in a slow worker
    started = [message.partition(":")[0] for message in ids(lab.history, "start")]
    places = [place for place, tenant in enumerate(started, 1) if tenant == "large"]
    share = 90 / places[89]
    assert 0.65 < share < 0.85, share
    # And the other one had the rest
    assert (started.count("large"), started.count("small")) == (120, 400)


@pytest.mark.parametrize("weight", [0, 101, -1, 2.5, "3", True, None])
def test_what_is_not_a_weight_is_refused(make_lab: LabMaker, weight: object) -> None:
    with pytest.raises(lanes.Misconfigured, match="the weight of a queue is a whole number from 1 to 100, not "):
        lanes.queue_arguments(weight=weight)
    # And where a queue is declared with arguments that were written by hand
    lab = make_lab()
    arguments = {**lanes.QUEUE_ARGUMENTS, "x-lanes-weight": weight}
    with (
        lab.app.connection_for_write() as connection,
        pytest.raises(lanes.Misconfigured, match="the weight of a queue is a whole number"),
    ):
        connection.default_channel.queue_declare("other", arguments=arguments)
