"""A run of a group that is steered takes messages that arrive meanwhile; what it leaves is the next run."""

from __future__ import annotations

import random

import pytest

from celery_lanes import Group
from tests.support.history import ids
from tests.support.lab import Lab, LabMaker
from tests.support.waiting import until

TALK = Group("talk", quiet_ms=0, max_wait_ms=60_000, most=20, steers=True)
POOLS = [("prefork", 2), ("threads", 8), ("gevent", 50)]


def say(lab: Lab, name: str, group: Group | None = TALK, **kwargs: str | bool) -> None:
    lab.send(name, ["talk"], task="steer", group=group, kwargs={"name": name, **kwargs})


def seen(lab: Lab, what: str) -> list[str]:
    return ids(lab.history, what)


@pytest.mark.parametrize(("pool", "slots"), POOLS)
def test_a_run_takes_what_arrives_and_the_rest_is_the_next_run(lab: Lab, pool: str, slots: int) -> None:
    # Given a run
    worker = lab.worker(pool, slots)
    say(lab, "a", gate="never")
    lab.started("a")
    # When messages of its group arrive, it takes them, in order
    say(lab, "b")
    until(lambda: seen(lab, "taken") == ["b@0"])
    say(lab, "c", ends=True)
    lab.drained()
    assert seen(lab, "taken") == ["b@0", "c@0"]
    # Then they are settled with it, and nothing else runs
    assert (seen(lab, "start"), seen(lab, "end")) == (["a"], ["a+b+c"])
    # And what arrives later is a run of its own
    say(lab, "d")
    lab.drained()
    assert seen(lab, "end") == ["a+b+c", "d"]
    assert [lab.count(name) for name in ("appended", "settled", "steered", "expired")] == [4, 4, 2, 0]
    assert "WARNING" not in worker.log.split("ready.")[1]


def test_a_message_that_does_not_belong_waits_and_so_do_those_behind_it(lab: Lab) -> None:
    lab.worker("threads", 8)
    say(lab, "a", gate="open")
    lab.started("a")
    say(lab, "other", group=TALK._replace(name="other"))
    say(lab, "b")
    lab.open("open")
    lab.drained()
    assert seen(lab, "end") == ["a", "other", "b"]
    assert lab.count("steered") == 0


@pytest.mark.parametrize(("pool", "slots"), POOLS)
def test_a_rerun_after_a_death_gets_the_same_messages_in_the_same_places(
    make_lab: LabMaker, pool: str, slots: int
) -> None:
    # Given a run that has taken messages, and is killed
    lab = make_lab(options={"lease_seconds": 1})
    lab.worker(pool, slots)
    say(lab, "a", gate="never")
    lab.started("a")
    say(lab, "b", moves=True)
    until(lambda: seen(lab, "taken") == ["b@0"])
    say(lab, "c", moves=True)
    until(lambda: len(seen(lab, "taken")) == 2)
    say(lab, "d", dies=True)
    # When it runs again, and another message arrives
    if pool != "prefork":
        until(lambda: len(seen(lab, "taken")) == 3)
        lab.worker(pool, slots)
    until(lambda: len(seen(lab, "taken")) == 6)
    say(lab, "e", ends=True)
    lab.drained()
    # Then it gets the same messages in the same places, and then the new one
    assert seen(lab, "taken") == [*["b@0", "c@1", "d@2"] * 2, "e@2"]
    assert (seen(lab, "start"), seen(lab, "end")) == (["a", "a"], ["a+b+c+d+e"])
    assert [lab.count(name) for name in ("appended", "settled", "steered")] == [5, 5, 4]


def test_what_a_rerun_does_not_get_to_is_the_next_run(make_lab: LabMaker) -> None:
    # Given a run that has taken two messages in different places, and is killed
    lab = make_lab()
    lab.worker("prefork", 2)
    say(lab, "a", gate="open")
    lab.started("a")
    say(lab, "b", once=True)
    until(lambda: seen(lab, "taken") == ["b@0"])
    say(lab, "c", dies=True)
    # When the next run ends before it has reached the place of the second one, to which another belongs now
    until(lambda: seen(lab, "taken") == ["b@0", "c@1", "b@0"])
    say(lab, "d", gate="open")
    lab.open("open")
    # Then both are the next run
    lab.drained()
    assert (seen(lab, "start"), seen(lab, "end")) == (["a", "a", "c+d"], ["a+b", "c+d"])
    assert lab.pending() == 0


def test_a_stopped_run_ends_with_what_it_has_taken(make_lab: LabMaker) -> None:
    lab = make_lab(lanes_control=True)
    lab.worker("threads", 8)
    say(lab, "a", gate="never")
    lab.started("a")
    say(lab, "b")
    until(lambda: seen(lab, "taken") == ["b@0"])
    lab.send("stop", ["talk"], stops=True)
    lab.drained()
    assert (seen(lab, "start"), seen(lab, "end")) == (["a", "stop"], ["stop"])


def test_a_message_that_arrives_unnoticed_is_taken_when_the_process_is_connected_again(make_lab: LabMaker) -> None:
    # Given a run whose process listens for arrivals
    lab = make_lab()
    lab.worker("threads", 8)
    say(lab, "a", gate="never")
    lab.started("a")
    # When the connection is cut, and a message arrives before there is another one
    for each in lab.client.client_list(_type="pubsub"):
        lab.client.client_kill_filter(_id=each["id"])
    say(lab, "b", ends=True)
    # Then the run takes it all the same
    lab.drained()
    assert seen(lab, "end") == ["a+b"]


def test_a_group_that_is_full_is_steered_too(lab: Lab) -> None:
    """The message behind it was there when the run began."""
    full = TALK._replace(most=2)
    for name in ("a", "b", "c"):
        say(lab, name, full, gate="never", ends=True)
    lab.worker("threads", 8)
    lab.drained()
    assert (seen(lab, "start"), seen(lab, "end")) == (["a+b"], ["a+b+c"])


def test_each_message_is_in_one_run_that_ends_while_children_are_killed(make_lab: LabMaker) -> None:
    # Given messages in four lanes, of which every fifth kills the child that takes it, or makes its next run differ
    lab, chosen = make_lab(), random.Random(30)
    lab.worker("prefork", 4)
    written = [f"{number % 4}:{number}" for number in range(120)]
    for name in written:
        lane = name[0]
        flags = {flag: True for flag in ("moves", "once", "dies", "ends") if chosen.random() < 0.2}
        talk = TALK._replace(name=lane, most=3)
        lab.send(name, [lane], task="steer", group=talk, kwargs={"name": name, "gate": "idle", **flags})
    # When all have been settled
    lab.drained()
    # Then each was in one run that ended, in the order of its lane
    ended = [name for names in seen(lab, "end") for name in names.split("+")]
    assert sorted(ended) == sorted(written)
    for lane in "0123":
        assert [name for name in ended if name[0] == lane] == [name for name in written if name[0] == lane]
    # And some were taken, and some killed
    assert len({each.partition("@")[0] for each in seen(lab, "taken")}) > 10
    assert len(seen(lab, "start")) > len(seen(lab, "end"))
    assert lab.count("appended") == lab.count("settled")
    assert lab.dead() == []
