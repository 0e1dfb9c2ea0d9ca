"""A task that publishes a message with its own id, as `self.replace()` does: nothing is lost, and each runs once."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

import celery_lanes as lanes
from celery_lanes.protocol import Store, keys
from tests.support.history import ids
from tests.support.lab import Lab, LabMaker
from tests.support.lab_app import LANE_QUEUES
from tests.support.waiting import until
from tests.support.worker import Worker

POOLS = [("solo", 1), ("prefork", 2)]


@pytest.fixture
def working(make_lab: LabMaker, redis_url: str) -> Lab:
    """A lab with a result backend."""
    return make_lab(result_backend=redis_url)


def replace(lab: Lab, **kwargs: Any) -> None:
    lab.send("m", ["lane"], task="replace", kwargs=kwargs, ignore_result=False)
    lab.send("behind", ["lane"], task="run")


def check_successful(lab: Lab, worker: Worker, task: str = "run") -> None:
    """The last replacement is this task, and has run; nothing is left."""
    until(lambda: f"{task}[m] succeeded" in worker.log)
    if task == "run":
        until(lambda: lab.app.AsyncResult("m").state == "SUCCESS")
    lab.ended("behind")
    lab.drained()
    assert lab.client.hlen(keys.SUCCESSORS) == 0


@pytest.mark.parametrize("pool", POOLS, ids=str)
@pytest.mark.parametrize("into", ["run", "ordinary", "chord", "group"])
def test_a_chain_of_replacements(working: Lab, pool: tuple[str, int], into: str) -> None:
    replace(working, times=3, into=into)
    # A group is replaced by the task that gathers its results
    check_successful(working, working.worker(*pool), "celery.accumulate" if into == "group" else "run")
    replaced = [f"replace-{left}" for left in (3, 2, 1)]
    assert [event.what for event in working.history if event.what in replaced] == replaced
    assert ids(working.history, "end").count("m") == (0 if into == "group" else 1)
    assert [ids(working.history, "end").count(part) for part in ("part-0", "part-1")] == (
        [1, 1] if into in ("chord", "group") else [0, 0]
    )


@pytest.mark.parametrize("pool", ["solo", "prefork"])
@pytest.mark.parametrize("into", ["run", "ordinary"])
def test_a_worker_dies_after_it_has_published_the_replacement(make_lab: LabMaker, pool: str, into: str) -> None:
    lab = make_lab(options={"lease_seconds": 1})
    lab.send("m", ["lane"], task="replace", kwargs={"times": 2, "into": into, "dies": pool == "prefork", "gate": "go"})
    worker = lab.worker(pool)
    if pool == "solo":
        until(lambda: lab.client.hlen(keys.SUCCESSORS))
        worker.kill_all()
        lab.worker(pool)
    lab.open("go")
    lab.ended("m")
    lab.drained()
    assert ids(lab.history, "replace-1").count("m") == (1 if pool == "solo" else 2)
    # A message of an ordinary queue is not compared with others
    assert ids(lab.history, "end").count("m") in ([1] if into == "run" else [1, 2])


def test_the_body_of_a_chord_is_published_before_the_replaced_task_ends(working: Lab) -> None:
    replace(working, into="chord", gate="go")
    worker = working.worker("threads", 4)
    working.ended("part-0", "part-1")
    until(lambda: working.client.hlen(keys.SUCCESSORS))
    working.open("go")
    check_successful(working, worker)
    assert ids(working.history, "end").count("m") == 1


def test_an_id_is_published_again_while_it_runs(lab: Lab) -> None:
    lab.send("m", ["lane"], task="run", kwargs={"gate": "go"})
    lab.worker("threads", 2)
    lab.started("m")
    lab.send("m", ["lane"], task="run")
    lab.send("m", ["lane"], task="run", countdown=0.1)
    lab.open("go")
    until(lambda: ids(lab.history, "end") == ["m", "m"])
    lab.drained()


def test_a_publish_whose_answer_was_lost_is_one_message(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a publish whose answer is lost, so that kombu repeats it, when its message already runs
    lab.worker("threads", 2)
    append = Store.append

    def lose_the_answer(*arguments: Any, **options: Any) -> Any:
        append(*arguments, **options)
        monkeypatch.setattr(Store, "append", append)
        lab.started("m")
        raise RedisConnectionError("lost")

    monkeypatch.setattr(Store, "append", lose_the_answer)
    lab.app.tasks["run"].apply_async(
        kwargs={"gate": "go"}, task_id="m", queue=LANE_QUEUES[0], headers=lanes.headers(["lane"])
    )
    lab.open("go")
    lab.drained()
    # Then it runs once
    assert ids(lab.history, "end") == ["m"]
    assert (lab.count("appended"), lab.count("seen")) == (1, 1)
