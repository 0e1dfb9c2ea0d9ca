"""Chains, links, groups and chords of Celery while workers are killed: what follows a task runs, and runs once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord, group

import celery_lanes as lanes
from celery_lanes.embedded_server import start_server
from tests.support.history import ids
from tests.support.lab import Lab, LabMaker
from tests.support.lab_app import LANE_QUEUES
from tests.support.waiting import until

POOLS = [("prefork", 2), ("threads", 4)]


@pytest.fixture
def working(make_lab: LabMaker, redis_url: str) -> Lab:
    """A lab with a result backend, whose leases are short."""
    return make_lab(result_backend=redis_url, options={"lease_seconds": 1})


def signature(
    lab: Lab, task_id: str, lane: str, *, once: tuple[str, int] | None = None, kwargs: Any = None, **options: Any
) -> Any:
    own = {"task_id": task_id, "queue": LANE_QUEUES[0], "headers": lanes.headers([lane], once=once)}
    return lab.app.tasks["run_and_linger"].si(**(kwargs or {})).set(**own, **options)


def start_chain(lab: Lab, first: Any, second: Any) -> None:
    chain(first, second).apply_async()


def start_link_error(lab: Lab, first: Any, second: Any) -> None:
    first.kwargs["fails"] = True
    first.set(link_error=[second]).apply_async()


def start_group(lab: Lab, first: Any, second: Any) -> None:
    """What follows the group is what follows its task."""
    group(first.set(link=[second])).apply_async()


def start_chord(lab: Lab, first: Any, second: Any) -> None:
    other = signature(lab, "other", "other", ignore_result=False)
    chord([first.set(ignore_result=False), other], second.set(ignore_result=False)).apply_async()


CANVAS = [start_chain, start_link_error, start_group, start_chord]
Start = Callable[[Lab, Any, Any], None]


@pytest.mark.first_only
@pytest.mark.parametrize("start", CANVAS)
def test_a_worker_dies_during_the_task(working: Lab, start: Start) -> None:
    worker = working.worker("threads", 4)
    start(working, signature(working, "first", "a", kwargs={"gate": "go"}), signature(working, "second", "b"))
    working.started("first")
    worker.kill_all()
    working.open("go")
    working.worker("threads", 4)
    working.ended("second")
    working.drained()
    assert Counter(ids(working.history, "start"))["first"] == 2
    assert {name: Counter(ids(working.history, "end"))[name] for name in ("first", "second")} == {
        "first": 1,
        "second": 1,
    }


@pytest.mark.first_only
@pytest.mark.parametrize("start", CANVAS)
@pytest.mark.parametrize(
    ("pool", "second"),
    [(POOLS[0], {"lane": "a"}), (POOLS[1], {"lane": "b", "once": ("second", 1), "countdown": 0.2})],
    ids=["same lane", "once"],
)
def test_a_worker_dies_after_it_published_what_follows(
    working: Lab, pool: tuple[str, int], start: Start, second: dict[str, Any]
) -> None:
    # Given a task that has ended, whose worker dies before it is settled
    worker = working.worker(*pool)
    start(working, signature(working, "first", "a", kwargs={"lingers": "go"}), signature(working, "second", **second))
    until(lambda: "first" in ids(working.history, "lingers"))
    if second["lane"] == "b" and start is not start_chord:
        working.ended("second")
        until(lambda: working.state_of("second") is None)  # settled
    worker.kill_all()
    working.open("go")
    # When it runs again, Then what follows it runs once
    working.worker(*pool)
    working.ended("second")
    until(lambda: ids(working.history, "lingers") == ["first"] * 2)
    working.drained()
    until(lambda: working.store.next_timers() == [])
    ended = Counter(ids(working.history, "end"))
    assert (ended["first"], ended["second"]) == (2, 1)


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool[0])
def test_a_worker_dies_while_it_publishes_the_body_of_a_chord(working: Lab, pool: tuple[str, int]) -> None:
    # Given a worker that dies after it has claimed the chord, before it has published the body
    worker = working.worker(*pool)
    header = [
        signature(working, "first", "a", ignore_result=False, kwargs={"gate": "go"}),
        signature(working, "other", "other", ignore_result=False),
    ]
    started = chord(header, signature(working, "second", "b", ignore_result=False)).apply_async()
    working.started("first")
    until(lambda: working.state_of("other") is None)
    working.client.set(working.app.backend.get_key_for_group(started.parent.id, ".c"), "of a dead worker", px=5_000)
    worker.kill_all()
    working.open("go")
    # When its task runs again, Then the body is published
    working.worker(*pool)
    working.ended("second")
    working.drained()
    assert Counter(ids(working.history, "end")) == {"first": 1, "other": 1, "second": 1}


@pytest.mark.parametrize("start", [start_chain, start_link_error, start_group])
def test_redis_is_away_when_a_task_ends(make_lab: LabMaker, tmp_path: Path, start: Start) -> None:
    # Given a task that ends while Redis is away
    with start_server(tmp_path / "redis") as server:
        lab = make_lab(server.url, result_backend=server.url, options={"lease_seconds": 1})
        worker = lab.worker("prefork", 2)
        start(lab, signature(lab, "first", "a", kwargs={"gate": "go"}), signature(lab, "second", "b"))
        lab.started("first")
        server.kill()
        lab.open("go")
        until(lambda: "first" in ids(lab.history, "end"))
        worker.tells("Redis does not answer the lease renewal")
        # When Redis is back, Then what follows runs
        with start_server(tmp_path / "redis", port=server.port):
            lab.ended("second")
            lab.drained()
            assert worker.is_running()
            lab.close()
