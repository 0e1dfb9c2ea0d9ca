"""Rates over all workers: never more starts than the rate allows, whatever dies, and no slot waits for one."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

import celery_lanes as lanes
from celery_lanes.cli.status import doing
from celery_lanes.monitoring import inspection
from celery_lanes.protocol import keys
from celery_lanes.words import NEUTRAL
from tests.support.history import check_once_each, check_order, ids
from tests.support.lab import Lab, LabMaker
from tests.support.waiting import until

SHORT = {"lease_seconds": 1}
LANES = ["a", "b", "c"]


def fences(lab: Lab, lane: str) -> list[int]:
    """The times of all hand-outs of a lane that have reached its handlers, µs on the clock of Redis."""
    found = [event for event in lab.history if event.what.startswith("fence:") and lane in lab.lanes[event.id]]
    return [int(event.what.removeprefix("fence:")) for event in found]


def check_rate(lab: Lab, per_second: int) -> None:
    """In no second there are more hand-outs than the rate says, nor are any two too close."""
    for lane in LANES:
        times = sorted(fences(lab, lane))
        assert times == fences(lab, lane)
        assert all(later - earlier >= 1_000_000 // per_second for earlier, later in pairwise(times)), times
        assert all(later - earlier >= 1_000_000 for earlier, later in zip(times, times[per_second:], strict=False))


@pytest.mark.first_only
@pytest.mark.parametrize(("pool", "slots"), [("prefork", 2), ("threads", 8), ("gevent", 50), ("solo", 1)])
def test_a_rate_holds_over_all_workers_while_they_are_killed(make_lab: LabMaker, pool: str, slots: int) -> None:
    # Given two workers, and lanes with a rate, of which one has a message that kills its process
    lab = make_lab(options=SHORT)
    workers = [lab.worker(pool, slots) for _ in range(2)]
    for number in range(25):
        for lane in LANES:
            deadly = lane == "c" and number == 5
            lab.publish(f"{lane}{number}", [lanes.limit(lane, rate="20/s")], task="pace", dies=deadly)
    # When they are killed one after the other, and others take over
    for count, worker in enumerate(workers, 1):
        until(lambda count=count: len(ids(lab.history, "end")) >= 15 * count)
        worker.kill_all()
        lab.worker(pool, slots)
    lab.worker("threads", 2)
    lab.drained()
    # Then each lane has run in order, at its rate
    check_order(lab.history, lab.lanes, killed={"w1", "w2", *(f"w{n}" for n in (3, 4) if pool != "prefork")})
    check_rate(lab, 20)
    # And nothing was counted but deaths
    assert [lab.count(name) for name in ("appended", "settled", "retried", "parked")] == [75, 75, 0, 0]


@pytest.mark.first_only
@pytest.mark.parametrize(("pool", "slots"), [("prefork", 2), ("threads", 8), ("gevent", 50), ("solo", 1)])
def test_an_idle_worker_knows_when_the_next_message_may_start(make_lab: LabMaker, pool: str, slots: int) -> None:
    # Given a worker that does nothing without a reason
    lab = make_lab(sweeps=False, only_wakeups=True)
    lab.worker(pool, slots)
    # When messages wait for the rate of their lane, or arrive while it is used up
    for number in range(3):
        lab.publish(f"a{number}", [lanes.limit("a", rate="2/s")], task="pace")
    lab.ended("a0")
    lab.publish("a3", [lanes.limit("a", rate="2/s")], task="pace")
    lab.ended("a3")
    until(lambda: lab.pending() == 0)
    lab.publish("a4", [lanes.limit("a", rate="2/s")], task="pace")
    # Then they run
    lab.drained()
    check_once_each(lab.history, lab.lanes)
    check_rate(lab, 2)


def test_a_lane_that_waits_for_its_rate_takes_no_slot(lab: Lab) -> None:
    # Given a worker with one slot, and a lane whose second message may start in an hour
    lab.worker("solo")
    for name in ("first", "second"):
        lab.publish(name, [lanes.limit("slow", rate="1/h"), "both"])
    lab.ended("first")
    until(lambda: lab.state_of("second") == "delayed")
    # When messages of other lanes arrive, they run; one of a lane that it also has waits behind it
    for number in range(5):
        lab.publish(f"other{number}", ["other"])
    lab.publish("behind", ["both"])
    lab.ended("other4")
    assert (lab.state_of("second"), lab.state_of("behind"), lab.leases()) == ("delayed", "waiting", [])
    [second] = inspection.records(lab.client, ["second"])
    assert second.lanes == ("slow", "both")
    assert re.fullmatch(r"waits for its rate for \S+ s", doing(second, inspection.now_us(lab.client), {}, NEUTRAL))
    # And the lane continues when its time has come
    lab.client.delete(keys.PACES)
    lab.client.zadd(keys.DELAYED, {"second": 1})
    lab.drained()
    check_once_each(lab.history, lab.lanes)
