"""SIGTERM: what runs ends and is settled, the rest goes back uncounted, and the next worker continues."""

from __future__ import annotations

import signal

import pytest

from tests.lanes.conftest import POOLS
from tests.lanes.history import ids
from tests.lanes.lab import Lab, LabMaker, numbered
from tests.poller.waiting import until

STOPPING = "Warm shutdown"


def test_running_messages_end_and_the_next_worker_continues_with_exactly_the_next_ones(
    lab: Lab, pool: tuple[str, int]
) -> None:
    # Given a worker with a reserve, and in each slot a message that waits at its gate, with two others behind it
    slots = pool[1]
    lab.publish_many(numbered(200, lambda n: [f"quick:{n}"]))
    first = lab.worker(*pool)
    lab.drained()
    running = [f"slow:{n}" for n in range(slots)]
    lab.publish_many({name: [name] for name in running}, gate="open")
    lab.publish_many({f"{name}/{n}": [name] for name in running for n in (1, 2)})
    lab.started(*running)
    # And messages of other lanes, some of which it may have taken as well
    lab.publish_many({f"other:{n}": [f"other:{n}"] for n in range(50)})
    # When it is asked to stop while they run
    first.ask_to_stop()
    first.tells(STOPPING)
    lab.open("open")
    assert first.exit_code() == 0
    # Then what ran has ended and is settled, nothing is leased, and nobody's death was counted
    history = lab.history
    assert set(running) <= set(ids(history, "end"))
    assert sorted(ids(history, "start")) == sorted(ids(history, "end"))
    assert lab.leases() == []
    assert [lab.state_of(name) for name in ids(history, "end")] == [None] * len(ids(history, "end"))
    assert not [key for key in lab.client.keys("lanes:message:*") if lab.client.hget(key, "died")]
    # And the next worker continues with exactly the next ones
    lab.worker(*pool)
    lab.drained()
    lab.check_once_each()


def test_a_cold_shutdown_leaves_its_messages_to_their_leases(make_lab: LabMaker) -> None:
    # Given a prefork worker that runs messages
    lab = make_lab(options={"lease_seconds": 1})
    lab.publish_many({name: [name] for name in ("a", "b")}, gate="open")
    worker = lab.worker("prefork", 2)
    lab.started("a", "b")
    # When it is told to leave at once, it does, and its lease keeper lives as long as it
    worker.process.send_signal(signal.SIGQUIT)
    worker.exit_code()
    assert "the lease keeper died" not in worker.log
    # Then the next one runs them
    lab.open("open")
    lab.worker("solo")
    lab.drained()
    assert sorted(ids(lab.history, "end")) == ["a", "b"]


@pytest.mark.parametrize(("pool", "deploys"), [("solo", 2), ("prefork", 5), ("threads", 2), ("gevent", 2)])
def test_workers_replaced_again_and_again_under_load_run_everything_once(lab: Lab, pool: str, deploys: int) -> None:
    # Given more messages than any of these workers can run
    lab.publish_many(numbered(2500, lambda n: [f"lane:{n % 60}"]))
    for deploy in range(1, deploys + 1):
        # When each is stopped amidst them (a child that waited for its result to be taken would wait for ever: app.py)
        worker = lab.worker(pool, POOLS[pool])
        until(lambda now=deploy: len(lab.history) > 200 * now)
        worker.stop()
        # Then it leaves no lease, and nothing that it started is unsettled
        assert lab.leases() == []
        assert lab.pending() == 2500 - len(ids(lab.history, "end"))
    assert lab.pending() > 0, "the last one had nothing left to be stopped at"
    lab.worker("threads", 8)
    lab.drained()
    lab.check_once_each()
    assert lab.count("refused") == 0


def test_workers_join_and_leave_while_another_one_works(lab: Lab) -> None:
    # Given a worker under load
    lab.publish_many(numbered(3000, lambda n: [f"lane:{n % 60}", *([f"lane:{n % 7}"] if n % 5 == 0 else [])]))
    lab.worker("prefork", 2)
    # When others join, take part, and leave
    for pool in ("gevent", "solo"):
        guest = lab.worker(pool, POOLS[pool])
        until(lambda name=guest.name: any(event.worker == name for event in lab.history) or not lab.pending())
        guest.stop()
    lab.drained()
    # Then everything ran once, in order
    lab.check_once_each()
    assert lab.count("refused") == 0
