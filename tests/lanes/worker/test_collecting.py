"""The messages of a group are one run, in every pool, also after a death and after a replay."""

from __future__ import annotations

import pytest

from celery_lanes import Group
from tests.lanes.conftest import POOLS
from tests.support.history import ids
from tests.support.lab import Lab, LabMaker
from tests.support.waiting import until

TALK = Group("talk", quiet_ms=700, max_wait_ms=60_000, most=20)


def say(lab: Lab, *names: str, group: Group | None = TALK, **kwargs: str) -> None:
    for name in names:
        lab.send(name, ["talk"], task="collect", group=group, kwargs={"name": name, **kwargs})


def runs(lab: Lab) -> list[str]:
    return ids(lab.history, "start")


def test_a_group_is_one_run_as_soon_as_it_is_due(make_lab: LabMaker, pool: tuple[str, int]) -> None:
    # Given a worker that finds ready messages only when it is woken
    lab = make_lab(only_wakeups=True, sweeps=False)
    lab.worker(*pool)
    # When three messages of a group are published, and then one that does not belong to it
    say(lab, "a", "b", "c")
    due_ms = lab.client.zscore("lanes:collecting", "a")
    assert lab.state_of("a") == "collecting"
    # Then they are one run, when the quiet time after the last of them is over
    until(lambda: runs(lab) == ["a+b+c"])
    seconds, micros = lab.client.time()
    assert int(seconds) * 1000 + int(micros) / 1000 >= (due_ms or 0)
    lab.drained()
    assert lab.count("appended") == lab.count("settled") == 1
    assert lab.count("collected") == 2
    assert not lab.client.exists("lanes:collecting")


def test_a_message_that_does_not_belong_ends_the_group(lab: Lab) -> None:
    lab.worker("threads", 8)
    say(lab, "a", "b", group=TALK._replace(quiet_ms=3_600_000, max_wait_ms=3_600_000))
    say(lab, "pay", group=None)
    lab.drained()
    assert runs(lab) == ["a+b", "pay"]


def test_messages_that_arrive_during_a_run_are_the_next_group(lab: Lab) -> None:
    lab.worker("threads", 8)
    say(lab, "a", gate="open")
    lab.started("a")
    say(lab, "b", "c")
    lab.open("open")
    lab.drained()
    assert runs(lab) == ["a", "b+c"]


@pytest.mark.parametrize(("pool", "slots"), POOLS.items())
def test_a_rerun_after_a_death_gets_the_same_group(make_lab: LabMaker, pool: str, slots: int) -> None:
    # Given a group whose run kills its process
    lab = make_lab(options={"lease_seconds": 1})
    lab.worker(pool, slots)
    say(lab, "a", "b", "c", gate="die")
    lab.started("a+b+c")
    # When a message of the same group arrives meanwhile
    say(lab, "d")
    if pool != "prefork":
        lab.worker(pool, slots)
    # Then the next run has the messages of the first one
    lab.drained()
    assert runs(lab) == ["a+b+c", "a+b+c", "d"]


def test_a_buried_group_is_one_dead_letter_and_is_replayed_as_one(lab: Lab) -> None:
    # Given a group that is buried before it is run
    say(lab, "a", "b", "c", group=TALK._replace(most=3))
    assert lab.state_of("a") == "ready"
    assert lab.store.purge("orders.0") == 1
    assert lab.dead() == ["a"]
    # When it is replayed, and a message of the same group is published
    lab.store.replay("a")
    say(lab, "d", group=TALK._replace(quiet_ms=0))
    lab.worker("threads", 8)
    # Then it has the same messages
    lab.drained()
    assert runs(lab) == ["a+b+c", "d"]


def test_a_plain_message_has_no_further_bodies(lab: Lab) -> None:
    lab.worker()
    say(lab, "a", group=None)
    lab.drained()
    assert runs(lab) == ["a"]
