"""A worker holds only messages that it can start: a slow message delays its own lanes and no other."""

from __future__ import annotations

from tests.support.lab import Lab, numbered
from tests.support.waiting import until


def test_another_worker_runs_messages_of_a_busy_one(lab: Lab, pool: tuple[str, int]) -> None:
    # Given a worker that has learned from quick messages to hold a reserve
    slots = pool[1]
    lab.publish_many(numbered(300, lambda n: [f"quick:{n}"]))
    lab.worker(*pool)
    lab.drained()
    # When each of its slots gets a slow message, with others in front of it, between them and after them
    slow = [f"slow:{n}" for n in range(slots)]
    lab.publish_many({name: [name] for name in slow}, gate="open")
    others = {f"other:{n}": (f"other:{n % 40}",) for n in range(200)}
    lab.publish_many(others)
    # Then it ends up with the slow ones alone: nothing waits for them in its hands
    until(lambda: set(lab.leases()) == set(slow))
    # And an idle worker, of a pool that runs anything, runs all that is left meanwhile
    lab.worker("threads", 4)
    lab.ended(*others)
    lab.open("open")
    lab.drained()
    lab.check_once_each()


def test_a_message_with_two_keys_waits_for_both_and_holds_both(lab: Lab, pool: tuple[str, int]) -> None:
    # Given a message of A and one of B that are held at their gates, one of both behind them, and one of each behind it
    lab.publish("a1", ["A"], gate="open a")
    lab.publish("b1", ["B"], gate="open b")
    lab.publish("ab", ["A", "B"], gate="open ab")
    lab.publish("a2", ["A"])
    lab.publish("b2", ["B"])
    lab.publish("c1", ["C"])
    workers = [lab.worker(*pool), lab.worker("threads", 4)]
    # When one of the two in front has ended, and somebody had the time to run a message of another lane
    lab.open("open a")
    lab.ended("a1")
    lab.publish("c2", ["C"])
    lab.ended("c2")
    # Then the one of both waits
    assert lab.state_of("ab") == "waiting"
    # And when both have ended it runs, and those behind it wait for it
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
