"""A message that joins the group of a run ends the run; the next one gets all messages of both."""

from __future__ import annotations

import time

import pytest

from celery_lanes import Group
from tests.support.history import ids
from tests.support.lab import Lab, LabMaker
from tests.support.waiting import until

TALK = Group("talk", quiet_ms=300, max_wait_ms=60_000, most=20, interrupts=True)
POOLS = [("prefork", 2), ("threads", 8), ("gevent", 50)]


def say(lab: Lab, name: str, group: Group | None = TALK, **kwargs: str) -> None:
    lab.send(name, ["talk"], task="converse", group=group, kwargs={"name": name, **kwargs})


def seen(lab: Lab, what: str) -> list[str]:
    return ids(lab.history, what)


@pytest.mark.parametrize(("pool", "slots"), POOLS)
def test_a_newer_message_ends_the_run_and_the_next_one_gets_both(make_lab: LabMaker, pool: str, slots: int) -> None:
    # Given a run that has made a call and waits; its lease is renewed every 40 s
    lab = make_lab(options={"lease_seconds": 120})
    worker = lab.worker(pool, slots)
    say(lab, "a", gate="never")
    until(lambda: seen(lab, "start") == ["a"] and b"done" in (lab.client.hget("lanes:journal:a", "1") or b""))
    # When another message of its group arrives
    before_s = time.monotonic()
    say(lab, "b", gate="open")
    # Then the run is notified, its next call is refused, and the next run has both messages and the call
    until(lambda: seen(lab, "start") == ["a", "a+b"])
    assert time.monotonic() - before_s < 20
    assert seen(lab, "told") == seen(lab, "refused") == ["a"]
    until(lambda: seen(lab, "previous") == ["say:a=said"])
    # And no attempt is counted, and nothing is logged as a problem
    lab.open("open")
    lab.drained()
    assert seen(lab, "end") == ["a+b"]
    assert (lab.count("settled"), lab.count("interrupted"), lab.count("expired"), lab.count("retried")) == (1, 1, 0, 0)
    assert "WARNING" not in worker.log.split("ready.")[1]
    # And the slot is free again
    say(lab, "c")
    until(lambda: seen(lab, "end") == ["a+b", "c"])


@pytest.mark.parametrize(("pool", "slots"), POOLS)
def test_a_shielded_run_is_interrupted_when_it_ends_the_shield(lab: Lab, pool: str, slots: int) -> None:
    # Given a run that is shielded
    lab.worker(pool, slots)
    say(lab, "a", shields="unshield", gate="never")
    until(lambda: seen(lab, "shielded") == ["a"])
    # When another message of its group arrives
    say(lab, "b", gate="open")
    assert lab.state_of("b") == "waiting"
    assert not seen(lab, "told")
    # Then it ends the run as soon as it is no longer shielded
    lab.open("unshield")
    lab.open("open")
    lab.drained()
    assert (seen(lab, "start"), seen(lab, "refused"), seen(lab, "end")) == (["a", "a+b"], ["a"], ["a+b"])


def test_a_message_that_does_not_belong_waits_for_the_run(lab: Lab) -> None:
    lab.worker("threads", 8)
    say(lab, "a", gate="open")
    lab.started("a")
    say(lab, "b", group=TALK._replace(name="other"))
    say(lab, "c", group=None)
    lab.open("open")
    lab.drained()
    assert seen(lab, "end") == ["a", "b", "c"]
    assert lab.count("interrupted") == 0


def test_an_interrupt_is_noticed_after_the_connection_was_cut(make_lab: LabMaker) -> None:
    # Given a run whose process listens for interrupts
    lab = make_lab()
    lab.worker("threads", 8)
    say(lab, "a", gate="never")
    lab.started("a")
    # When the connection is cut, and a message arrives before there is another one
    for each in lab.client.client_list(_type="pubsub"):
        lab.client.client_kill_filter(_id=each["id"])
    say(lab, "b", gate="open")
    lab.open("open")
    # Then the run ends all the same, also if the next one has settled the message before
    lab.drained()
    assert seen(lab, "end") == ["a+b"]
    until(lambda: seen(lab, "told") == ["a"])
