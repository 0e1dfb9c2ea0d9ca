"""Tasks whose lane is one of their arguments: in order without a word at the call site, in each of Celery's ways."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from kombu import Exchange, Queue

import celery_lanes as lanes
from tests.support import ROOT
from tests.support.history import check_order, ids
from tests.support.lab import Lab, LabMaker
from tests.support.lab_app import LANE_QUEUES
from tests.support.waiting import until
from tests.support.worker import CELERY, environment


def test_a_worker_is_killed_and_the_order_stays(make_lab: LabMaker) -> None:
    # Given tasks of three customers, published in turn, the first of which has started
    lab = make_lab(options={"lease_seconds": 1})
    published = {f"{lane}-{n}": [lane] for n in range(10) for lane in ("a", "b", "c")}
    for name, (lane,) in published.items():
        lab.app.tasks["keyed"].delay(lane, name, gate="go" if name.endswith("-0") else None)
    first = lab.worker("prefork", 2)
    until(lambda: ids(lab.history, "start"))
    # When its worker is killed, and two others run
    first.kill_all()
    for _ in range(2):
        lab.worker("prefork", 2)
    lab.open("go")
    # Then each customer's tasks have run in order, and never overlapped
    lab.drained()
    check_order(lab.history, published, killed=["w1"])


@pytest.fixture
def working(make_lab: LabMaker, redis_url: str) -> Lab:
    lab = make_lab(result_backend=redis_url)
    lab.worker("threads", 8)
    return lab


def canvases(lab: Lab) -> dict[str, Callable[[], Any]]:
    keyed = lab.app.tasks["keyed"]
    return {
        "group": lambda: group(keyed.s("a", f"m{n}") for n in range(3)),
        "chain": lambda: chain(keyed.s("a", "m0"), keyed.s("m1"), keyed.si("b", "m2")),  # "a" is a result, too
        "chord": lambda: chord([keyed.s("a", "m0"), keyed.s("a", "m1")], keyed.si("a", "m2")),
        "link": lambda: keyed.s("a", "m0").on_error(keyed.si("a", "m9")) | keyed.s("m1", into=["a", "m2"]),
        "callback": lambda: keyed.s("a", "m0", into=["a", "m1"]).set(link=keyed.si("a", "m2")),
    }


@pytest.mark.parametrize("is_named", [False, True])
def test_the_check_for_the_end_of_a_chord_is_in_no_lane(make_lab: LabMaker, tmp_path: Path, is_named: bool) -> None:
    # Given a backend without chords of its own, and a body whose lane is that of the header
    lab = make_lab(result_backend=f"file://{tmp_path}")
    keyed = lab.app.tasks["keyed"]
    options = {"queue": LANE_QUEUES[0], "headers": lanes.headers(["a"])} if is_named else {}
    header = chain(keyed.si("a", "m0", gate="go"), keyed.si("a", "m1"))
    chord([header], keyed.si("a", "m2").set(**options)).apply_async()
    lab.worker("threads", 4)
    # When Celery has checked it, before the second task of the header is published
    until(lambda: lab.count("retried"))
    lab.open("go")
    # Then that does not wait for the check
    lab.ended("m2")
    assert ids(lab.history, "end") == ["m0", "m1", "m2"]


@pytest.mark.parametrize("name", ["group", "chain", "chord", "link", "callback"])
def test_a_canvas_is_in_order(working: Lab, name: str) -> None:
    published = {f"m{n}": ["a"] for n in range(3)}
    canvases(working)[name]().apply_async()
    working.ended(*published)
    working.drained()
    check_order(working.history, published)


def test_a_retry_keeps_its_place(working: Lab) -> None:
    for n in range(3):
        working.app.tasks["keyed"].delay("a", f"m{n}", fails=2 - n)
    working.ended("m0", "m1", "m2")
    assert ids(working.history, "start") == ["m0", "m0", "m0", "m1", "m1", "m2"]


def test_a_countdown_joins_the_lane_when_it_is_due(working: Lab) -> None:
    keyed = working.app.tasks["keyed"]
    keyed.apply_async(("a", "late"), countdown=1)
    keyed.delay("a", "now", gate="go")
    until(lambda: working.count("fired"))
    working.open("go")
    working.ended("now", "late")
    check_order(working.history, {"now": ["a"], "late": ["a"]})


def test_celery_call_publishes_into_the_lane(lab: Lab) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment(lab.settings, {})}
    for arguments, status in (('["a", "m0"]', 0), ("[null, 1]", 1)):
        command = [*CELERY, "call", "keyed", "--args", arguments]
        called = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
        assert called.returncode == status, called
    assert called.stderr.startswith("Error: lane of keyed is None, and its lane '{lane}' needs it.")
    assert lab.pending() == 1


def test_another_program_sends_by_a_route(working: Lab, redis_url: str) -> None:
    queue = Queue(LANE_QUEUES[1], Exchange(""), LANE_QUEUES[1], queue_arguments=lanes.QUEUE_ARGUMENTS)
    web = Celery("web", broker=redis_url, set_as_current=False)
    lanes.install(web)
    web.conf.update(task_queues=[queue], task_routes={"keyed": {"lane": "{0}"}})
    published = {f"m{n}": ["a"] for n in range(5)}
    for name in published:
        web.send_task("keyed", ["a", name])
    working.ended(*published)
    working.drained()
    check_order(working.history, published)
    web.close()


@pytest.mark.parametrize(("kind", "queue"), [("ordinary", "celery"), ("lane", LANE_QUEUES[0])])
def test_a_worker_warns_of_a_publisher_that_does_not_know_the_lane(
    working: Lab, redis_url: str, kind: str, queue: str
) -> None:
    working.app.tasks["keyed"].apply_async(["a", "unordered"], headers=lanes.headers([]))
    working.ended("unordered")
    [worker] = working._workers
    assert "keyed has a lane" not in worker.log
    web = Celery("web", broker=redis_url, set_as_current=False)
    for name in ("m0", "m1"):
        web.send_task("keyed", ["a", name], queue=queue)
    working.ended("m0", "m1")
    warning = f"keyed has a lane, and a message of it came through the {kind} queue {queue}, in no order"
    until(lambda: warning in worker.log)
    assert worker.log.count(warning) == 1
    web.close()
