"""A worker holds only messages that it can start: a slow message delays only its own lanes."""

from __future__ import annotations

from tests.support.lab import Lab, numbered
from tests.support.waiting import until


def test_another_worker_runs_messages_of_a_busy_one(lab: Lab, pool: tuple[str, int]) -> None:
    # Given a worker that prefetches because it has run quick messages
    slots = pool[1]
    lab.publish_many(numbered(300, lambda n: [f"quick:{n}"]))
    lab.worker(*pool)
    lab.drained()
    # When each of its slots gets a slow message, with other messages before and after them
    slow = [f"slow:{n}" for n in range(slots)]
    lab.publish_many({name: [name] for name in slow}, gate="open")
    others = {f"other:{n}": (f"other:{n % 40}",) for n in range(200)}
    lab.publish_many(others)
    # Then it holds only the slow ones after a while: no prefetched message waits behind them
    until(lambda: set(lab.leases()) == set(slow))
    # And an idle worker runs all others meanwhile
    lab.worker("threads", 4)
    lab.ended(*others)
    lab.open("open")
    lab.drained()
    lab.check_once_each()


def test_a_message_with_two_keys_waits_for_both_and_holds_both(lab: Lab, pool: tuple[str, int]) -> None:
    # Given a message of A and one of B that wait at gates, one of both lanes behind them, and one of each behind that
    lab.publish("a1", ["A"], gate="open a")
    lab.publish("b1", ["B"], gate="open b")
    lab.publish("ab", ["A", "B"], gate="open ab")
    lab.publish("a2", ["A"])
    lab.publish("b2", ["B"])
    lab.publish("c1", ["C"])
    workers = [lab.worker(*pool), lab.worker("threads", 4)]
    # When one of the first two has ended, and a later message of another lane has run
    lab.open("open a")
    lab.ended("a1")
    lab.publish("c2", ["C"])
    lab.ended("c2")
    # Then the message of both lanes waits
    assert lab.state_of("ab") == "waiting"
    # And when both have ended, it runs, and those behind it wait for it
    lab.open("open b")
    lab.started("ab")
    lab.publish("c3", ["C"])
    lab.ended("c3")
    assert [lab.state_of("a2"), lab.state_of("b2")] == ["waiting", "waiting"]
    lab.open("open ab")
    lab.drained()
    lab.check_once_each()
    for worker in workers:
        worker.stop()
