"""A message that becomes ready wakes an idle worker, so that workers need not poll.

The workers of these tests do not poll (lab_app.py, `only_wakeups`): without a wake-up they would wait for an hour.
"""

from __future__ import annotations

from typing import Any

from tests.support.history import ids
from tests.support.lab import Lab, LabMaker
from tests.support.waiting import until


def wait_until_idle(lab: Lab, workers: int = 1) -> None:
    """Wait until all workers block on their doorbells, and no message is leased."""
    until(lambda: lab.client.info("clients")["blocked_clients"] >= workers and not lab.leases())


def calls(lab: Lab, command: str) -> int:
    stats: dict[str, Any] = lab.client.info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {}).get("calls", 0))


def test_each_way_to_become_ready_wakes_an_idle_worker(make_lab: LabMaker, pool: tuple[str, int]) -> None:
    # Given three messages that another holder has leased, and one message behind one of them
    lab = make_lab(only_wakeups=True, options={"lease_seconds": 600})
    for name in ("released", "settled", "retried"):
        lab.publish(name, [name])
    lab.publish("behind", ["settled"])
    turned = lab.store.turn(["orders.0"], holder="test", lease_ms=600_000, room=3)
    fences = {leased.id: leased.fence for leased in turned.leased}
    lab.worker(*pool)
    until(lambda: lab.client.info("clients")["blocked_clients"] >= 1)
    # When one is released, it runs
    lab.store.release([("released", fences["released"])])
    lab.ended("released")
    until(lambda: set(lab.leases()) == {"settled", "retried"})
    # When one is settled, the one behind it runs
    lab.store.turn([], holder="test", lease_ms=1, room=0, settles=[("settled", fences["settled"])])
    lab.ended("behind")
    until(lambda: set(lab.leases()) == {"retried"})
    # When a retry is due, it runs
    lab.store.retry("retried", fences["retried"], delay_ms=50, problem={"type": "E", "message": ""})
    lab.ended("retried")
    wait_until_idle(lab)
    # When messages of one lane are appended, they run one after the other
    for n in range(20):
        lab.publish(f"appended:{n}", ["lane"])
    lab.drained()
    # Then each has run once
    del lab.lanes["settled"]
    lab.check_once_each()


def test_a_settle_wakes_a_worker_of_another_queue(make_lab: LabMaker, pool: tuple[str, int]) -> None:
    # Given a worker that runs a message of one queue, and an idle worker of another queue with the next of that lane
    lab = make_lab(only_wakeups=True)
    lab.publish("first", ["lane"], queue="orders.1", gate="open")
    lab.publish("second", ["lane"], queue="orders.2")
    lab.worker(*pool, "-Q", "orders.1")
    lab.started("first")
    lab.worker(*pool, "-Q", "orders.2")
    until(lambda: lab.client.info("clients")["blocked_clients"] >= 1)
    # When the first ends
    lab.open("open")
    # Then the second runs, on the other worker
    lab.drained()
    lab.check_once_each()
    assert [event.worker for event in lab.history] == ["w1", "w1", "w2", "w2"]


def test_a_full_worker_wakes_the_next(make_lab: LabMaker) -> None:
    # Given two idle workers with one slot each
    lab = make_lab(only_wakeups=True)
    lab.worker("solo", 1)
    lab.worker("gevent", 1)
    wait_until_idle(lab, workers=2)
    # When two messages are appended at once to one queue, which wakes one worker
    lab.publish_many({"a": ["a"], "e": ["e"]}, gate="open")
    # Then both run at the same time
    lab.started("a", "e")
    assert {event.worker for event in lab.history} == {"w1", "w2"}
    lab.open("open")
    lab.drained()


def test_a_worker_without_free_slots_passes_its_wakeup_on(make_lab: LabMaker) -> None:
    # Given a worker that has waited longest for a wake-up, and whose only slot is occupied by an ordinary task
    lab = make_lab(only_wakeups=True)
    lab.worker("threads", 1)
    wait_until_idle(lab)
    lab.worker("threads", 1, "-Q", "orders.0")
    wait_until_idle(lab, workers=2)
    lab.publish_unordered("plain", "p", kwargs={"gate": "open"})
    lab.started("p")
    # When a message is appended, the other worker runs it
    lab.publish("m", ["lane"])
    lab.ended("m")
    assert [event.worker for event in lab.history if event.id == "m"] == ["w2", "w2"]
    lab.open("open")


def test_an_idle_worker_sends_few_commands(lab: Lab, pool: tuple[str, int]) -> None:
    # Given an idle worker
    lab.publish("first", ["lane"])
    lab.worker(*pool)
    lab.drained()
    wait_until_idle(lab)
    waits, scripts = calls(lab, "brpop"), calls(lab, "evalsha")
    # When it has waited for a wake-up a few times
    until(lambda: calls(lab, "brpop") - waits >= 4)
    # Then it has fetched once for each wait, and its background thread swept and repaired about as often
    waits, scripts = calls(lab, "brpop") - waits, calls(lab, "evalsha") - scripts
    assert scripts <= 4 * waits
    assert ids(lab.history, "start") == ["first"]
