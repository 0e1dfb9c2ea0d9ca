"""Runs whose begin or end Celery cannot record: each message runs, none keeps its lane or its slot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from celery_lanes.embedded_server import start_server
from celery_lanes.protocol import connect
from celery_lanes.transport import release_5_6
from tests.support.history import ids
from tests.support.lab import Lab, LabMaker
from tests.support.waiting import until


class Results:
    """A server for results, which refuses to store any while it is full."""

    def __init__(self, url: str) -> None:
        self.url = url

    def set_full(self, is_full: bool) -> None:
        with connect(self.url) as client:
            client.config_set("maxmemory", 1 if is_full else 0)


@pytest.fixture
def results(tmp_path: Path) -> Iterator[Results]:
    with start_server(tmp_path / "results", appendfsync="no") as server:
        yield Results(server.url)


def publish_three(lab: Lab) -> None:
    for name in "abc":
        lab.send(name, ["lane"], task="keyed", kwargs={"lane": "lane", "name": name})


def free_slots_run(lab: Lab, slots: int) -> None:
    """Each slot of the worker is free: these messages wait for one another."""
    names = [f"free{n}" for n in range(slots)]
    for name in names:
        lab.publish(name, [name], gate="free")
    lab.started(*names)
    lab.open("free")
    lab.ended(*names)


def test_a_task_that_could_not_begin_waits(make_lab: LabMaker, results: Results, pool: tuple[str, int]) -> None:
    lab = make_lab(result_backend=results.url, task_track_started=True)
    results.set_full(True)
    worker = lab.worker(*pool)
    publish_three(lab)
    worker.tells("a has not begun, and waits")
    assert not lab.history
    until(lambda: lab.state_of("a") == "delayed")
    results.set_full(False)
    lab.ended("a", "b", "c")
    lab.drained()
    assert ids(lab.history, "end") == ["a", "b", "c"]
    assert not lab.dead()


def test_a_task_ends_without_its_result(make_lab: LabMaker, results: Results, pool: tuple[str, int]) -> None:
    lab = make_lab(result_backend=results.url)
    results.set_full(True)
    worker = lab.worker(*pool)
    publish_three(lab)
    lab.ended("a", "b", "c")
    lab.drained()
    worker.tells("c has ended, and Celery could not record how")
    assert ids(lab.history, "end") == ["a", "b", "c"]
    free_slots_run(lab, pool[1])


def test_a_hook_of_a_failure_that_fails_too_keeps_nothing(lab: Lab, pool: tuple[str, int]) -> None:
    lab.worker(*pool)
    for name in "ab":
        lab.publish(name, ["lane"], task="run_and_linger", fails=True, hook_fails=True)
    lab.ended("a", "b")
    lab.drained()
    assert not lab.dead()
    free_slots_run(lab, pool[1])


def test_a_rejection_that_cannot_be_recorded_is_buried(
    make_lab: LabMaker, results: Results, pool: tuple[str, int]
) -> None:
    lab = make_lab(result_backend=results.url, task_store_errors_even_if_ignored=True)
    results.set_full(True)
    lab.worker(*pool)
    lab.publish("a", ["lane"], task="reject", requeue=False)
    until(lambda: lab.dead() == ["a"])
    assert ("could not be recorded" in lab.problem("a")) is not release_5_6.IS_CELERY  # which records none
    free_slots_run(lab, pool[1])


@pytest.mark.parametrize("pool", [("threads", 4), ("gevent", 4)], ids=["threads", "gevent"])
def test_memory_that_is_exhausted_keeps_nothing(lab: Lab, pool: tuple[str, int]) -> None:
    lab.worker(*pool)
    lab.publish("a", ["lane"], task="exhaust_memory")
    lab.started("a")
    lab.drained()
    free_slots_run(lab, pool[1])
