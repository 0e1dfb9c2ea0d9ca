"""The messages of a group are one run, in every pool, also after a death and after a replay."""

from __future__ import annotations

import pytest

from celery_lanes import Group, PublishRefused, batch, debounce
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


def test_a_debounced_run_starts_when_it_is_quiet(lab: Lab) -> None:
    lab.worker("threads", 8)
    say(lab, "a", "b", "c", group=debounce("talk", 0.7, max_wait_s=60))
    lab.drained()
    assert runs(lab) == ["a+b+c"]


def test_a_batch_starts_when_it_is_full_or_has_waited(lab: Lab) -> None:
    lab.worker("threads", 8)
    say(lab, "a", "b", group=batch("full", 2, 3600))
    lab.ended("a+b")
    say(lab, "c", group=batch("waited", 100, 0.3))
    lab.drained()
    assert runs(lab) == ["a+b", "c"]


def test_debounce_and_batch_are_groups() -> None:
    assert debounce("sync", 2) == Group("sync", quiet_ms=2000, max_wait_ms=20_000, most=1000)
    assert debounce("sync", 80_000).max_wait_ms == 86_400_000
    assert debounce("sync", 0.5, max_wait_s=1) == Group("sync", quiet_ms=500, max_wait_ms=1000, most=1000)
    assert batch("index", 100, 5) == Group("index", quiet_ms=5000, max_wait_ms=5000, most=100)


@pytest.mark.parametrize("seconds", [0, -1, "2", None, True, 86_401, float("nan")])
def test_what_is_not_a_time_is_refused(seconds: float) -> None:
    with pytest.raises(PublishRefused, match=r"is not a time: use seconds from 0\.001 to 86,400"):
        batch("index", 100, seconds)


@pytest.mark.parametrize("size", [0, -1, 2.0, "3", True, 10_001])
def test_what_is_not_a_size_is_refused(size: int) -> None:
    with pytest.raises(PublishRefused, match="is not a number of messages: use 1 to 10,000"):
        batch("index", size, 5)


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
