"""`lanes adopt` moves a backlog while workers run and publishers publish, and is killed in the middle."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from celery import Celery

from tests.support import ROOT
from tests.support.history import check_once_each, ids
from tests.support.lab import Lab
from tests.support.lab_app import LANE_QUEUES
from tests.support.waiting import WITHIN_S, until
from tests.support.worker import environment

LANES = 6
#: A step that moves few messages, so that a kill finds it in the middle.
SLOWLY = "from celery_lanes.transport import adoption; adoption.AT_ONCE = 4; from celery.__main__ import main; main()"


@pytest.fixture
def stock(redis_url: str) -> Iterator[Celery]:
    with Celery("web", broker=redis_url, set_as_current=False) as stock:
        yield stock


def start_adopt(lab: Lab, *arguments: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment(lab.settings, {})}
    command = [sys.executable, "-c", SLOWLY, "-A", "tests.support.lab_app", "lanes", "adopt", "celery", *arguments]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def publish(stock: Celery, first: int, count: int) -> dict[str, list[str]]:
    """As a program that has not been changed. Every fourth task has no lane."""
    published = {}
    for n in range(first, first + count):
        if n % 4 == 3:
            stock.send_task("plain", task_id=f"plain:{n}")
        else:
            lane = f"l{n % LANES}"
            stock.send_task("keyed", [lane, f"m{n}"], task_id=f"m{n}")
            published[f"m{n}"] = [lane]
    return published


def test_adopt_is_killed_again_and_again_while_workers_run(lab: Lab, stock: Celery) -> None:
    # Given a backlog, workers that read the lanes only, and a publisher that continues
    published = publish(stock, 0, 800)
    for _ in range(2):
        lab.worker("threads", 4, "-Q", ",".join(LANE_QUEUES))
    late = threading.Thread(target=lambda: published.update(publish(stock, 800, 200)))
    late.start()
    # When `adopt` is killed at random moments, and started again
    choice, kills = random.Random(), 0
    for _ in range(4):
        adopt, moved = start_adopt(lab), lab.count("appended") + choice.randrange(1, 120)
        until(lambda adopt=adopt, moved=moved: lab.count("appended") >= moved or adopt.poll() is not None)
        adopt.kill()
        kills += adopt.wait() < 0
        adopt.communicate()
    late.join()
    adopt = start_adopt(lab)
    said, _ = adopt.communicate(timeout=WITHIN_S)
    # Then each message has run once, in the order of its lane, and the others are where they were
    assert kills > 0
    assert adopt.returncode == 0, said
    lab.ended(*published)
    lab.drained()
    check_once_each(lab.history, dict(sorted(published.items(), key=lambda each: int(each[0][1:]))))
    left = [json.loads(each)["headers"]["id"] for each in lab.client.lrange("celery", 0, -1)[::-1]]
    assert left == [f"plain:{n}" for n in range(3, 1000, 4)]


def test_workers_of_the_old_queue_run_while_it_is_adopted(lab: Lab, stock: Celery) -> None:
    # Given a worker that reads the old queue and the lanes
    lab.worker("threads", 4)
    published = publish(stock, 0, 300)
    adopt = start_adopt(lab)
    said, _ = adopt.communicate(timeout=WITHIN_S)
    # Then each message runs once, in whichever worker has taken it
    assert adopt.returncode == 0, said
    lab.ended(*published, *(f"plain:{n}" for n in range(3, 300, 4)))
    lab.drained()
    started = ids(lab.history, "start")
    assert len(started) == len(set(started)) == 300


def test_what_is_published_to_the_old_queue_follows(lab: Lab, stock: Celery) -> None:
    lab.worker("threads", 4, "-Q", ",".join(LANE_QUEUES))
    adopt = start_adopt(lab, "--follow")
    try:
        published = {}
        for n in range(3):
            published |= publish(stock, 100 * n, 100)
            lab.ended(*published)
        check_once_each(lab.history, published)
    finally:
        adopt.send_signal(signal.SIGTERM)
        said, _ = adopt.communicate(timeout=WITHIN_S)
    assert "interrupted\nmoved: 225 of keyed into orders.0\n" in said


def test_messages_of_a_killed_worker_are_moved(lab: Lab, stock: Celery) -> None:
    # Given a worker of the old queue that has taken messages, and dies
    lab.settings["task_acks_late"] = True
    old = lab.worker("threads", 2, "-Q", "celery", "--prefetch-multiplier", "4")
    published = {f"m{n}": ["l"] for n in range(6)}
    for name in published:
        stock.send_task("keyed", ["l", name], {"gate": "go"}, task_id=name)
    stock.send_task("keyed", ["l", "eta"], {"gate": "go"}, task_id="eta", countdown=1)
    until(lambda: lab.client.hlen("unacked") == 7)
    lab.started("m0", "m1")
    # While it lives, its messages stay with it
    said, _ = start_adopt(lab, "--unacked").communicate(timeout=WITHIN_S)
    assert "not acknowledged: 7, which workers have taken" in said
    old.kill_all()
    # When it is dead, they move, also the one that it held until its eta
    adopt = start_adopt(lab, "--unacked")
    said, _ = adopt.communicate(timeout=WITHIN_S)
    assert "put back into celery: 7, of no worker that answers" in said
    assert "moved: 7 of keyed into orders.0" in said
    lab.open("go")
    lab.worker("threads", 2, "-Q", ",".join(LANE_QUEUES))
    lab.ended(*published, "eta")
    lab.drained()
    by_new = [event for event in lab.history if event.worker == "w2" and event.id != "eta"]
    check_once_each(by_new, published)
