"""Limits over all workers: never more runs than may be, in the order of publishing, whatever dies; nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import celery_lanes as lanes
from celery_lanes.cli.status import doing
from celery_lanes.monitoring import inspection
from celery_lanes.protocol import keys
from celery_lanes.words import NEUTRAL
from tests.support.history import Event, check_order, ids
from tests.support.lab import Lab, LabMaker
from tests.support.waiting import until

SHORT = {"lease_seconds": 1}
POOLS = [("solo", 1), ("prefork", 2), ("threads", 8), ("gevent", 50)]


def check_limit(events: Sequence[Event], published: Sequence[str], most: int) -> None:
    """Of these messages, in the order of their publishing, at most `most` ran at a time, and each of them to its end.

    A message of a killed worker is running until its next run has ended: it keeps its permit.
    """
    position = {each: n for n, each in enumerate(published)}
    running: set[str] = set()
    ended: set[str] = set()
    for event in events:
        if event.id not in position:
            continue
        if event.what == "start":
            ended.discard(event.id)  # its worker was killed before it had settled the message
            assert position[event.id] < len(ended) + most, f"{event} before it was its turn: {len(ended)} had ended"
            running.add(event.id)
            assert len(running) <= most, f"{event} while {running}"
        elif event.what == "end":
            running.discard(event.id)
            ended.add(event.id)
    assert ended == set(published), f"never ran to their end: {sorted(set(published) - ended)[:5]}"


@pytest.mark.parametrize(("pool", "slots"), POOLS)
def test_a_limit_holds_over_all_workers_while_they_are_killed(make_lab: LabMaker, pool: str, slots: int) -> None:
    # Given two workers, and messages of two limits, of which one has a message that kills its process
    lab = make_lab(options=SHORT)
    workers = [lab.worker(pool, slots) for _ in range(2)]
    published: dict[str, list[str]] = {"x": [], "y": []}
    for number in range(40):
        for key, most in (("x", 1), ("y", 3)):
            message = f"{key}{number}"
            published[key].append(message)
            deadly = message == "y5"
            lab.publish(message, [lanes.limit(key, concurrency=most)], task="pace", dies=deadly)
    # When they are killed one after the other, and others take over
    for count, worker in enumerate(workers, 1):
        until(lambda count=count: len(ids(lab.history, "end")) >= 20 * count)
        worker.kill_all()
        lab.worker(pool, slots)
    lab.worker("threads", 4)
    lab.drained()
    # Then there were never more runs than may be, and nothing is lost
    check_limit(lab.history, published["x"], 1)
    check_limit(lab.history, published["y"], 3)
    # And no permit is left taken
    assert [lab.count(name) for name in ("appended", "settled", "retried")] == [80, 80, 0]
    assert lab.client.keys(keys.LIMIT + "*") == []


@pytest.mark.parametrize(("pool", "slots"), [("prefork", 4), ("threads", 8)])
def test_several_run_at_a_time(lab: Lab, pool: str, slots: int) -> None:
    # Given two workers with more slots than a limit allows
    for _ in range(2):
        lab.worker(pool, slots)
    # When messages of it are published, and wait at a gate
    published = [f"m{number}" for number in range(9)]
    for message in published:
        lab.publish(message, [lanes.limit("x", concurrency=3)], gate="gate")
    # Then the first three run at the same time, and the others are gated
    lab.started(*published[:3])
    assert [lab.state_of(message) for message in published[3:]] == ["gated"] * 6
    lab.open("gate")
    lab.drained()
    check_limit(lab.history, published, 3)


def test_a_frozen_worker_does_not_use_a_permit_twice(make_lab: LabMaker) -> None:
    # Given a worker that is frozen during a run, and a message that waits for its permit
    lab = make_lab(options=SHORT)
    frozen = lab.worker("prefork", 1)
    for message in ("first", "second"):
        lab.publish(message, [lanes.limit("x", concurrency=1)], gate=message)
    lab.started("first")
    frozen.freeze()
    # When its lease is over, the message runs elsewhere, in its permit
    lab.worker("threads", 2)
    until(lambda: ids(lab.history, "start").count("first") == 2)
    assert lab.state_of("second") == "gated"
    # And the frozen worker continues, ends its run, and stops
    lab.open(f"first {frozen.name}")
    frozen.thaw()
    until(lambda: ids(lab.history, "end") == ["first"])
    frozen.stop()
    # Then the permit is still that of the run that counts
    assert (lab.state_of("first"), lab.state_of("second")) == ("leased", "gated")
    lab.open("first")
    lab.open("second")
    lab.drained()
    assert [each.id for each in lab.history if each.worker == "w2" and each.what == "end"] == ["first", "second"]
    assert lab.count("settled") == 2
    assert lab.client.keys(keys.LIMIT + "*") == []


@pytest.mark.parametrize(("pool", "slots"), POOLS)
def test_an_idle_worker_learns_of_a_permit_that_becomes_free(make_lab: LabMaker, pool: str, slots: int) -> None:
    # Given workers of two queues that do nothing without a reason
    lab = make_lab(sweeps=False, only_wakeups=True)
    lab.worker("solo", 1, "-Q", "orders.0")
    lab.worker(pool, slots, "-Q", "orders.1")
    # When a message of the other queue waits for a permit
    lab.publish("first", [lanes.limit("x", concurrency=1)], gate="gate")
    lab.started("first")
    lab.publish("second", [lanes.limit("x", concurrency=1)], queue="orders.1")
    lab.open("gate")
    # Then it runs when the permit is free
    lab.drained()
    check_limit(lab.history, ["first", "second"], 1)


def test_a_message_that_waits_for_a_permit_takes_no_slot(lab: Lab) -> None:
    # Given a limit that is used up, and a worker with one slot
    lab.worker("solo", 1, "-Q", "orders.1")
    lab.publish("first", [lanes.limit("x", concurrency=1)], queue="orders.2")
    lab.publish("second", [lanes.limit("x", concurrency=1)], queue="orders.1")
    lab.publish("third", ["a", lanes.limit("x", concurrency=1)], queue="orders.1")
    # When messages of no limit arrive, they run; one of a lane of a message that waits is behind it
    lab.publish("behind", ["a"], queue="orders.1")
    for number in range(5):
        lab.publish(f"other{number}", ["other"], queue="orders.1")
    lab.ended("other4")
    found = [lab.state_of(message) for message in ("first", "second", "third", "behind")]
    assert found == ["ready", "gated", "gated", "waiting"]
    [record] = inspection.records(lab.client, ["third"])
    assert (record.lanes, record.limits) == (("a",), ("x",))
    shown = doing(record, inspection.now_us(lab.client), {}, NEUTRAL)
    assert shown.startswith("waits for its limit x for ")
    assert inspection.in_lane(lab.client, "x", 9) == (["first", "second", "third"], 3)
    # And they run when a worker reads the other queue
    lab.worker("solo", 1)
    lab.drained()
    check_limit(lab.history, ["first", "second", "third"], 1)


def test_a_lane_and_a_limit(make_lab: LabMaker) -> None:
    """One at a time and in order of a customer, and two at a time of a bank, while workers are killed."""
    lab = make_lab(options=SHORT)
    workers = [lab.worker("prefork", 3) for _ in range(2)]
    for number in range(30):
        customer = f"customer:{number % 5}"
        lab.send(f"m{number}", [customer, lanes.limit("bank", concurrency=2)])
        lab.lanes[f"m{number}"] = [customer]
    for count, worker in enumerate(workers, 1):
        until(lambda count=count: len(ids(lab.history, "end")) >= 8 * count)
        worker.kill_all()
        lab.worker("prefork", 3)
    lab.drained()
    check_order(lab.history, lab.lanes, killed={"w1", "w2"})
    running: set[str] = set()
    for event in lab.history:
        if event.what == "start":
            running.add(event.id)
            assert len(running) <= 2, f"{event} while {running}"
        elif event.what == "end":
            running.discard(event.id)


@pytest.mark.parametrize("door", ["apply_async", "countdown", "chain", "other program"])
def test_limits_and_rates_hold_however_a_message_is_published(lab: Lab, door: str) -> None:
    # Given a message of a lane, a limit and a rate
    keyed = ["a", lanes.limit("x", concurrency=2), lanes.limit("slow", rate="10/m")]
    options = {"queue": "orders.0", "headers": lanes.headers(keyed)}
    task = lab.app.tasks["run"]
    match door:
        case "apply_async":
            task.apply_async(**options)
        case "countdown":
            task.apply_async(countdown=0.01, **options)
        case "chain":
            (task.si().set(**options) | task.si().set(**options)).apply_async()
        case "other program":  # which needs no celery_lanes to write these headers
            headers = {"lane_keys": ["a", "x", "slow"], "lane_limits": {"x": 2}, "lane_rates": {"slow": "10/m"}}
            task.apply_async(queue="orders.0", headers=headers)
    if door == "countdown":
        lab.worker("solo", 1, "-Q", "orders.1")
    # Then it is in its lane and in its limit
    until(lambda: lab.client.zcard(keys.LIMIT + "x") == 1)
    assert lab.client.zcard(keys.lane("a")) == 1
    # And its start counts for its rate
    lab.worker("solo")
    until(lambda: lab.client.zrange(keys.PACES, 0, -1) == [b"slow"])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"lane_limits": {"b": 1}}, "are not limits of lane keys of this message"),
        ({"lane_limits": ["a"]}, "are not limits of lane keys of this message"),
        ({"lane_limits": {"a": 1}, "lane_rates": {"a": "1/s"}}, "are not limits of lane keys of this message"),
        ({"lane_limits": {"a": 0}}, "concurrency=0 is not a number of messages"),
        ({"lane_rates": {"b": "1/s"}}, "are not rates of the lane keys of this message"),
        ({"lane_rates": ["a"]}, "are not rates of the lane keys of this message"),
        ({"lane_rates": {"a": "often"}}, "'often' is not a rate"),
    ],
)
def test_wrong_limits_and_rates_are_refused(lab: Lab, given: dict[str, object], sentence: str) -> None:
    with pytest.raises(lanes.PublishRefused, match=sentence):
        lab.app.tasks["run"].apply_async(queue="orders.0", headers={"lane_keys": ["a"], **given})
    with pytest.raises(lanes.PublishRefused, match="cannot have a lane with a rate"):
        lanes.headers([lanes.limit("a", rate="1/s")], group=lanes.Group("g", 1, 1, 2))
    assert lab.client.keys("lanes:*") == []
