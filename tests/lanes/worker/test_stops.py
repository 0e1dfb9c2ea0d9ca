"""A message with `stops` ends the run of another one, which is handed out once more, to be settled."""

from __future__ import annotations

import time

import pytest
from celery.exceptions import TaskRevokedError
from redis import Redis

import celery_lanes as lanes
from celery_lanes.protocol import connect, keys
from celery_lanes.runtime import clock
from celery_lanes.worker import interrupt_listener
from celery_lanes.worker.interrupt_listener import InterruptListener
from tests.support.history import ids
from tests.support.lab import Lab, LabMaker
from tests.support.waiting import until

POOLS = [("prefork", 2), ("threads", 8), ("gevent", 50)]


def seen(lab: Lab, what: str) -> list[str]:
    return ids(lab.history, what)


def converse(lab: Lab, name: str, **kwargs: str) -> None:
    lab.send(name, ["talk"], task="converse", kwargs={"name": name, **kwargs})


def has_called(lab: Lab, name: str) -> bool:
    return b"done" in (lab.client.hget(f"lanes:journal:{name}", "1") or b"")


@pytest.mark.parametrize(("pool", "slots"), POOLS)
def test_a_run_is_told_and_its_message_is_settled(make_lab: LabMaker, pool: str, slots: int) -> None:
    # Given a run that has made a call and waits, and a message behind it; its lease is renewed every 40 s
    lab = make_lab(lanes_control=True, options={"lease_seconds": 120})
    worker = lab.worker(pool, slots)
    converse(lab, "a", gate="never")
    until(lambda: has_called(lab, "a"))
    lab.send("b", ["talk"])
    # When a message stops it
    before_s = time.monotonic()
    lab.send("stop", ["talk"], stops=True)
    # Then it is notified, its next call is refused, and its message is settled with the knowledge of its calls
    lab.drained()
    assert time.monotonic() - before_s < 20
    assert seen(lab, "told") == seen(lab, "refused") == seen(lab, "stopped") == seen(lab, "marked") == ["a"]
    assert seen(lab, "previous") == ["say:a=said"]
    # And the messages behind it run, in their places
    assert seen(lab, "start") == ["a", "b", "stop"]
    assert seen(lab, "end") == ["b", "stop"]
    # And no attempt is counted, and nothing is logged as a problem
    counted = [lab.count(name) for name in ("settled", "stopped", "interrupted", "expired", "retried")]
    assert counted == [3, 1, 0, 0, 0]
    assert "WARNING" not in worker.log.split("ready.")[1]
    # And the slot is free again
    converse(lab, "c")
    until(lambda: seen(lab, "end") == ["b", "stop", "c"])


@pytest.mark.parametrize(("pool", "slots"), POOLS)
def test_a_shielded_run_is_stopped_when_it_ends_the_shield(make_lab: LabMaker, pool: str, slots: int) -> None:
    lab = make_lab(lanes_control=True)
    lab.worker(pool, slots)
    converse(lab, "a", shields="unshield", gate="never")
    until(lambda: seen(lab, "shielded") == ["a"])
    lab.send("stop", ["talk"], stops=True)
    assert not seen(lab, "told")
    lab.open("unshield")
    lab.drained()
    assert (seen(lab, "refused"), seen(lab, "marked"), seen(lab, "end")) == (["a"], ["a"], ["stop"])


@pytest.mark.parametrize("is_controlled", [True, False])
def test_the_result_of_a_stopped_task_is_revoked(make_lab: LabMaker, redis_url: str, is_controlled: bool) -> None:
    # Given a run of a task that has a result, also one that is not told
    lab = make_lab(result_backend=redis_url, lanes_control=is_controlled)
    lab.worker("threads", 8)
    headers = {"queue": "orders.0", "headers": lanes.headers(["talk"])}
    result = lab.app.tasks["run"].apply_async(kwargs={"gate": "open"}, task_id="a", ignore_result=False, **headers)
    lab.started("a")
    # When it is stopped
    lab.send("stop", ["talk"], stops=True)
    # Then its result is that of a revoked task, and what the run returns changes nothing
    with pytest.raises(TaskRevokedError):
        result.get(timeout=30)
    lab.open("open")
    lab.drained()
    assert lab.count("settled") == 2


def test_a_worker_that_is_killed_between_the_stop_and_the_end(make_lab: LabMaker) -> None:
    # Given a stopped message whose worker ends it
    lab = make_lab(lanes_control=True, options={"lease_seconds": 3})
    first = lab.worker("prefork", 1)
    converse(lab, "a", gate="never", marks="mark")
    until(lambda: has_called(lab, "a"))
    lab.send("stop", ["talk"], stops=True)
    until(lambda: seen(lab, "previous") == ["say:a=said"])
    # When that worker is killed
    first.kill_all()
    lab.open("mark")
    # Then another one ends it, with the same knowledge, and it does not run again
    lab.worker("threads", 8)
    lab.drained()
    assert (seen(lab, "start"), seen(lab, "stopped"), seen(lab, "marked")) == (["a", "stop"], ["a", "a"], ["a"])
    assert seen(lab, "previous") == ["say:a=said"] * 2
    assert (lab.count("settled"), lab.count("expired")) == (2, 1)


def test_a_run_that_has_not_begun_is_not_begun(make_lab: LabMaker) -> None:
    lab = make_lab(lanes_control=True)
    converse(lab, "a", gate="never")
    lab.send("stop", ["talk"], stops=True)
    lab.worker("threads", 8)
    lab.drained()
    assert (seen(lab, "start"), seen(lab, "stopped")) == (["stop"], ["a"])


def test_a_process_that_listens_asks_nothing(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt_listener, "_MOST_EARLY", 2)
    client = connect(redis_url)
    listener = InterruptListener("me", lambda: Redis.from_url(redis_url))
    told: list[str] = []

    def watch(tag: str, handed_out_s: float) -> bool:
        return listener.watch(tag, lambda: told.append(tag), lambda _: told.append(f"{tag} asks"), handed_out_s)

    # Given a first run, and a process that does not listen yet
    assert watch("a#1", clock.now_s()) is True
    # Then it asks when the process listens, and later runs cost nothing
    until(lambda: told == ["a#1 asks"])
    assert watch("b#1", clock.now_s()) is True
    # And one that was handed out before asks itself
    assert watch("0#1", 0.0) is False
    # And notices that arrive before their run begins are kept, the last ones
    for tag in ("b#1", "c#1", "d#1", "e#1"):
        client.publish(f"{keys.INTERRUPTS}me", tag)
    until(lambda: told == ["a#1 asks", "b#1"] and len(listener._early) == 2 and "e#1" in listener._early)
    assert watch("e#1", clock.now_s()) is True
    assert watch("c#1", clock.now_s()) is True
    assert told == ["a#1 asks", "b#1", "e#1"]
