"""A turn that is asked for while messages of the last one still run: nothing waits for whoever cannot read it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tasks.lanes import clock
from tasks.lanes.answers import Turned
from tasks.lanes.asking import Asking
from tasks.lanes.connect import connect
from tasks.lanes.early import EarlyTurn
from tasks.lanes.leases import LeaseKeeper
from tasks.lanes.publish import NewMessage
from tests.lanes.lab import Lab, LabMaker, numbered
from tests.poller.waiting import until

MINUTE_MS = 60_000


def test_it_is_taken_back_once_and_only_while_it_is_under_way() -> None:
    early = EarlyTurn()
    assert not early.take_back(after_s=0)
    early.asked(clock.now_s())
    assert not early.take_back(after_s=60)
    assert early.take_back(after_s=0)
    assert not early.take_back(after_s=0)
    assert early.ended()
    early.asked(clock.now_s())
    assert not early.ended()
    assert not early.take_back(after_s=0)


def test_the_lease_keeper_gives_back_what_nobody_has_read(lab: Lab, redis_url: str) -> None:
    # Given a worker that runs one message, and has a turn under way that brought two
    settler = lab.app.lanes.settler
    ids = ["runs", "unread 1", "unread 2"]
    lab.store.append([NewMessage(each, "orders.0", "{}", [each]) for each in ids])
    read = lab.store.turn(["orders.0"], holder=settler.holder, lease_ms=MINUTE_MS, room=1)
    settler.turn_ended(read.leased, clock.now_s(), suspects_wait=False)
    lab.store.turn(["orders.0"], holder=settler.holder, lease_ms=MINUTE_MS, room=2)
    settler.early_turn.asked(clock.now_s() - 60)
    # When its keeper looks
    LeaseKeeper(settler, lambda: connect(redis_url))._tick()
    # Then they are ready again
    assert [lab.state_of(each) for each in ids] == ["leased", "ready", "ready"]
    # And whoever reads of them now has nothing to run, and asks Redis first what it holds
    assert settler.early_turn.ended()


def test_who_reads_one_that_was_taken_back_runs_nothing_of_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    settler = lab.app.lanes.settler
    channel: Any = SimpleNamespace(settler=settler)
    asking = Asking("TURN", channel)
    answer = Turned([], False, False, [object()])  # type: ignore[list-item]
    monkeypatch.setattr("tasks.lanes.asking.turn_answer", lambda _: answer)
    monkeypatch.setattr(asking, "read", lambda: None)
    settler.early_turn.asked(clock.now_s())
    assert asking.answer() is answer
    settler.early_turn.asked(clock.now_s())
    settler.early_turn.take_back(after_s=0)
    assert asking.answer() == Turned([], True, False, [])
    assert settler.must_reconcile


def test_what_comes_early_does_not_wait_behind_a_slow_one(make_lab: LabMaker) -> None:
    # Given a backlog of quick messages in which slow ones stand, and workers that run on their loops' own threads
    lab = make_lab(options={"lease_seconds": 600})
    slow = [f"slow:{n}" for n in range(3)]
    quick = numbered(400, lambda n: [f"quick:{n}"])
    names = list(quick)
    for n, name in enumerate(slow):
        lab.publish_many({each: quick[each] for each in names[n * 100 : (n + 1) * 100]})
        lab.publish_many({name: [name]}, gate="open")
    lab.publish_many({each: quick[each] for each in names[300:]})
    for _ in slow:
        lab.worker("solo", 1, is_awaited=False)
    # When each of them is held up by a slow one
    lab.started(*slow)
    # Then another worker runs all that is left, however long their leases are
    lab.worker("threads", 4)
    lab.ended(*quick)
    until(lambda: set(lab.leases()) == set(slow))
    lab.open("open")
    lab.drained()
    lab.check_once_each()
