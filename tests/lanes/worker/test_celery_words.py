"""Celery's own words in a lane queue: retries, canvas and revokes, with real workers."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import chain, chord, group

import celery_lanes as lanes
from celery_lanes.protocol import keys
from celery_lanes.transport import release_5_6
from tests.support.history import ids
from tests.support.lab import Lab, LabMaker
from tests.support.lab_app import LANE_QUEUES
from tests.support.waiting import until


@pytest.fixture(params=[("prefork", 2), ("threads", 4)])
def working(make_lab: LabMaker, redis_url: str, request: pytest.FixtureRequest) -> Lab:
    """A lab with a result backend and a worker."""
    lab = make_lab(result_backend=redis_url)
    lab.worker(*request.param)
    return lab


def signature(lab: Lab, task_id: str, lane: str, **options: Any) -> Any:
    own = {"task_id": task_id, "queue": LANE_QUEUES[0], "headers": lanes.headers([lane])}
    return lab.app.tasks["run"].si().set(**own, **options)


def ask(lab: Lab, answer: str, command: Callable[[], Any]) -> None:
    """Send a remote command until the worker logs that it got it: a worker that is ready may not listen yet."""

    def is_answered() -> bool:
        command()
        return answer in lab._workers[0].log

    until(is_answered)


def delay_s(lab: Lab, message_id: str) -> float:
    """How long a message that is delayed must wait."""
    due_ms = until(lambda: lab.client.zscore(keys.DELAYED, message_id))
    return float(due_ms) / 1000 - int(lab.client.time()[0])


def end_delay(lab: Lab, message_id: str) -> None:
    lab.client.zadd(keys.DELAYED, {message_id: 1}, xx=True)


def retries(lab: Lab) -> list[str]:
    return [event.what for event in lab.history if event.what.startswith("retries")]


def test_a_duplicate_has_the_result_of_the_message_that_is_kept(working: Lab) -> None:
    def options(number: int) -> dict[str, Any]:
        headers = lanes.headers(["customer:9"], once=("order", number))
        return {"queue": LANE_QUEUES[0], "headers": headers, "ignore_result": False}

    run = working.app.tasks["run"]
    kept = run.apply_async(**options(17))
    duplicates = [run.apply_async(**options(17)), working.app.send_task("run", **options(17))]
    for each in (kept, *duplicates):
        until(each.successful)
        assert each.id == kept.id
    assert run.apply_async(**options(18)).id != kept.id
    assert run.apply_async(task_id="mine", **options(19)).id == "mine"
    working.ended("mine")
    assert len(ids(working.history, "start")) == 3


def test_the_backoff_of_autoretry_grows_until_the_last_retry(working: Lab) -> None:
    working.publish("a", ["lane"], task="back_off")
    for least_s in (60, 120):
        until(lambda least_s=least_s: delay_s(working, "a") > least_s - 5)  # type: ignore[misc]
        assert delay_s(working, "a") == pytest.approx(least_s, abs=20)
        end_delay(working, "a")
    working.drained()
    assert retries(working) == ["retries:0", "retries:1", "retries:2"]


def test_a_retry_may_have_an_eta(working: Lab) -> None:
    # When a task is retried at a time, then its lane waits until then
    working.publish("a", ["lane"], task="retry_with", eta=(datetime.now(UTC) + timedelta(hours=1)).isoformat())
    working.publish("b", ["lane"])
    assert delay_s(working, "a") == pytest.approx(3600, abs=20)
    end_delay(working, "a")
    working.drained()
    assert ids(working.history, "end") == ["a", "b"]


def test_a_retry_keeps_its_arguments_and_says_so(make_lab: LabMaker) -> None:
    lab = make_lab()
    worker = lab.worker("threads", 1)
    lab.publish("same", ["lane"], task="retry_with", args=[], countdown=0)
    lab.drained()
    assert "retried with its first arguments" not in worker.log
    lab.publish("other", ["lane"], task="retry_with", args=[1], countdown=0)
    lab.drained()
    worker.tells("lanes: other is retried with its first arguments, not with those of retry()")
    assert ids(lab.history, "end") == ["same", "other"]


@pytest.mark.skipif(release_5_6.IS_CELERY, reason="acks_on_failure is new in Celery 5.7")
@pytest.mark.parametrize("pool", ["solo", "prefork"])
def test_a_failure_that_is_not_acknowledged_is_buried_with_its_error(make_lab: LabMaker, pool: str) -> None:
    lab = make_lab(task_acks_late=True, task_acks_on_failure_or_timeout=False)
    for name in ("run_and_linger", "reject"):
        lab.publish(name, ["lane"], task=name, **({"requeue": False} if name == "reject" else {"fails": True}))
    lab.publish("fail_without_text", ["lane"], task="fail_without_text")
    lab.worker(pool, 1)
    lab.drained()
    assert lab.dead() == ["run_and_linger", "reject", "fail_without_text"]
    found = json.loads(lab.problem("run_and_linger"))
    assert (found["type"], found["message"]) == ("RuntimeError", "as told")
    assert 'raise RuntimeError("as told")' in found["traceback"]
    assert json.loads(lab.problem("reject"))["type"] == "Rejected"
    textless = json.loads(lab.problem("fail_without_text"))
    assert (textless["type"], textless["message"]) == ("TextlessError", "(its text failed: ValueError)")


@pytest.mark.parametrize("when", [{"eta": datetime(1999, 1, 1, tzinfo=UTC)}, {"countdown": -50.0}])
def test_a_time_in_the_past_is_now(lab: Lab, when: dict[str, Any]) -> None:
    lab.send("first", ["lane"])
    lab.send("late", ["lane"], **when)
    lab.send("last", ["lane"])
    lab.worker("prefork", 1)
    lab.ended("last")
    assert ids(lab.history, "end") == ["first", "late", "last"]


@pytest.mark.parametrize("when", [datetime(9999, 12, 31, tzinfo=UTC), datetime.max])
def test_the_last_times_of_python(lab: Lab, when: datetime) -> None:
    lab.send("far", ["lane"], eta=when)
    [timer] = lab.store.next_timers()
    assert timer.at_ms == pytest.approx(when.replace(tzinfo=UTC).timestamp() * 1000, abs=1)


def test_a_chain_and_a_link_join_the_end_of_their_lanes(working: Lab) -> None:
    chain(
        signature(working, "first", "a"),
        signature(working, "second", "a", countdown=0.5),
        signature(working, "third", "b", link=[signature(working, "linked", "a")]),
    ).apply_async()
    working.send("other", ["a"])
    working.ended("linked")
    working.drained()
    assert ids(working.history, "end") == ["first", "other", "second", "third", "linked"]


def test_a_chord_runs_its_body_once(working: Lab) -> None:
    chord(
        [
            signature(working, "a", "a", countdown=0.3, ignore_result=False),
            signature(working, "b", "b", ignore_result=False),
        ],
        signature(working, "body", "a", ignore_result=False),
    ).apply_async()
    working.ended("body")
    working.drained()
    *both, last = ids(working.history, "end")
    assert (sorted(both), last) == (["a", "b"], "body")


def test_revoking_a_group_removes_what_waits(lab: Lab) -> None:
    waiting = group(signature(lab, "a", "a"), signature(lab, "b", "b")).apply_async(countdown=3_600)
    assert {timer.id for timer in lab.store.next_timers()} == {"a", "b"}
    waiting.revoke()
    assert lab.store.next_timers() == []


def test_a_task_that_is_revoked_before_it_is_published_does_not_run(working: Lab) -> None:
    ask(working, "Tasks flagged as revoked", lambda: working.app.control.revoke(["now", "later"]))
    working.send("now", ["lane"])
    working.send("later", ["lane"], countdown=0.2)
    working.send("other", ["lane"], countdown=0.4)
    working.ended("other")
    working.drained()
    assert ids(working.history, "start") == ["other"]


def test_a_rate_limit_does_not_hold_a_lane(working: Lab) -> None:
    ask(working, "New rate limit for tasks of type run", lambda: working.app.control.rate_limit("run", "1/h"))
    for name in "abc":
        working.publish(name, ["lane"])
    working.ended("a", "b", "c")


def test_a_rate_limit_of_a_task_applies_only_to_ordinary_queues(lab: Lab) -> None:
    # Given a worker that may start one message of each task in an hour
    worker = lab.worker("threads", 4, task_annotations={"*": {"rate_limit": "1/h"}})
    for name in ("p1", "p2"):
        lab.publish_unordered("run", name)
    for name in "abc":
        lab.publish(name, ["lane"])
    # When it has received all of them
    lab.ended("a", "b", "c")
    until(lambda: all(f"run[{name}] received" in worker.log for name in ("p1", "p2")))
    until(lambda: {"p1", "p2"} & set(ids(lab.history, "end")))
    worker.stop()
    # Then only those of the ordinary queue were limited
    assert len({"p1", "p2"} & set(ids(lab.history, "start"))) == 1
    assert "the rate_limit of task run does not apply to its messages in lanes" in worker.log


def test_with_task_always_eager_it_runs_at_once(make_lab: LabMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = make_lab(task_always_eager=True)
    monkeypatch.setenv("LANES_HISTORY", str(lab.history_file))
    lab.send("a", ["lane"], countdown=3_600)
    assert ids(lab.history, "end") == ["a"]
    assert lab.store.next_timers() == []


@pytest.mark.parametrize("task", ["fail_once", "fail_once_directly"])
def test_a_base_class_of_the_project_runs_its_tasks_with_their_leases(
    lab: Lab, pool: tuple[str, int], task: str
) -> None:
    lab.publish_unordered(task, "plain")
    lab.publish("m", ["lane"], task=task)
    lab.worker(*pool)
    lab.ended("m", "plain")
    lab.drained()
    for name in ("m", "plain"):
        assert [event.what for event in lab.history if event.id == name] == [
            *("entered", "start", "own-retry"),
            *("entered", "start", "end"),
        ]
    assert (lab.count("appended"), lab.count("retried")) == (1, 1)


def test_a_class_with_its_own_strategy_works_on_ordinary_queues_only(lab: Lab) -> None:
    lab.publish("m", ["lane"], task="batch")
    lab.publish_unordered("batch", "plain")
    worker = lab.worker("threads", 2)
    until(lambda: ids(lab.history, "batched") == ["plain"])
    until(lambda: lab.dead() == ["m"])
    assert "task batch has a Strategy of its own; use it on ordinary queues only" in worker.log
