"""Messages and settings that lanes do not support are refused with an error, before anything is stored."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu import Exchange, Queue

import celery_lanes as lanes
from celery_lanes.embedded_server import start_server
from celery_lanes.install import check_transport
from celery_lanes.protocol import connect
from tests.lanes.old_server import old_server
from tests.support import ROOT, forks
from tests.support.lab import Lab, LabMaker, batch, needs_batches
from tests.support.lab_app import LANE_QUEUES, ORDINARY_QUEUE
from tests.support.waiting import until
from tests.support.worker import CELERY, environment


def test_a_lane_queue_refuses_a_message_without_lane_keys(lab: Lab) -> None:
    with pytest.raises(lanes.PublishRefused, match="or pass the keys that order the message"):
        lab.app.tasks["run"].apply_async(queue=LANE_QUEUES[0])
    assert lab.client.keys("lanes:*") + lab.client.keys("orders.*") == []


def test_celery_call_publishes_with_the_keys_of_its_route_only(make_lab: LabMaker) -> None:
    def call(lab: Lab, *words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(ROOT), **environment(lab.settings, {})}
        return forks.run([*CELERY, "call", "run", *words], ROOT, env)

    refused = call(make_lab(), "--queue", LANE_QUEUES[0])
    assert refused.returncode == 1
    assert refused.stderr == (
        f"Error: '{LANE_QUEUES[0]}' is a lane queue: give the task a lane (@app.task(lane=…)), or pass the keys that "
        "order the message, headers=lanes.headers([…]), to apply_async or in task_routes; an empty list means no "
        "order\n"
    )
    routed = make_lab(task_routes={"run": {"queue": LANE_QUEUES[0], "headers": lanes.headers(["calls"])}})
    called = call(routed)
    assert routed.state_of(called.stdout.strip()) == "ready"


def test_an_ordinary_queue_refuses_a_message_with_lane_keys(lab: Lab) -> None:
    with pytest.raises(lanes.PublishRefused, match="is an ordinary queue, and this message has lane keys"):
        lab.app.tasks["run"].apply_async(queue=ORDINARY_QUEUE, headers=lanes.headers(["lane"]))
    assert lab.client.llen(ORDINARY_QUEUE) == 0


@pytest.mark.parametrize(
    "option", [{"lease_seconds": 0}, {"lease_seconds": "15"}, {"max_deaths": 0}, {"max_deaths": 2.5}]
)
def test_a_transport_option_that_is_no_such_number_is_refused(make_lab: LabMaker, option: dict[str, Any]) -> None:
    [(name, value)] = option.items()
    worker = make_lab(options=option).worker("solo", is_awaited=False)
    assert worker.exit_code() != 0
    assert f"{name}={value!r} in broker_transport_options: use a " in worker.log


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ({"lease_second": 3}, "lease_second in broker_transport_options is not an option; did you mean lease_seconds?"),
        ({"maxdeaths": 3}, "maxdeaths in broker_transport_options is not an option; did you mean max_deaths?"),
        ({"global_keyprefix": "é:"}, "global_keyprefix='é:' in broker_transport_options: use ASCII characters"),
    ],
)
def test_a_transport_option_without_effect_is_refused(
    make_lab: LabMaker, option: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(lanes.Misconfigured, match=re.escape(sentence)):
        make_lab(options=option).app.lanes.in_flight  # noqa: B018


def test_a_task_with_lanes_instead_of_lane_is_named(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    app = Celery("shop", broker=redis_url, set_as_current=False)
    lanes.install(app)

    @app.task(name="mistyped", shared=False, lanes="customer:{customer}")
    def mistyped(customer: int) -> None: ...

    assert "mistyped" in app.tasks
    assert "task mistyped has lanes=…, which orders nothing: the option is lane=" in caplog.text


def test_messages_without_keys_run(lab: Lab) -> None:
    for name in ("a", "b"):
        lab.publish(name, [])
    lab.worker("solo")
    lab.drained()
    lab.check_once_each()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"countdown": 5, "headers": lanes.headers(["lane"], group=lanes.Group("talk", 1, 1, 1))}, "of a group"),
        ({"eta": "tomorrow", "headers": lanes.headers(["lane"])}, "'tomorrow' is not a time"),
    ],
)
def test_some_etas_are_refused(lab: Lab, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(lanes.PublishRefused, match=reason):
        lab.app.tasks["run"].apply_async(queue=LANE_QUEUES[0], **options)
    assert lab.client.keys("lanes:*") + lab.client.keys("orders.*") == []


@needs_batches
def test_a_batch_with_a_refused_message_is_not_sent(lab: Lab) -> None:
    def publish_both() -> None:
        with lab.app.producer_pool.acquire(block=True) as producer, producer.batch():
            for headers in (lanes.headers(["lane"]), None):
                lab.app.tasks["run"].apply_async(queue=LANE_QUEUES[0], headers=headers, producer=producer)

    with pytest.raises(lanes.PublishRefused):
        publish_both()
    assert lab.count("appended") == 0


@pytest.mark.parametrize("options", [{}, {"countdown": 60}])
def test_an_id_with_a_control_character_is_refused(lab: Lab, options: dict[str, Any]) -> None:
    headers = lanes.headers(["lane"])
    with pytest.raises(lanes.PublishRefused, match="is not the id of a message"):
        lab.app.tasks["run"].apply_async(queue=LANE_QUEUES[0], headers=headers, task_id="two\nlines", **options)
    assert lab.client.keys("lanes:*") + lab.client.keys("orders.*") == []


def test_a_fanout_exchange_refuses_a_message_with_lane_keys(lab: Lab) -> None:
    everywhere = Queue("everywhere", Exchange("everywhere", "fanout"), queue_arguments=lanes.QUEUE_ARGUMENTS)
    for queue in (everywhere, Queue("ordinary", Exchange("ordinary", "fanout"))):
        with pytest.raises(lanes.PublishRefused, match="is a fanout exchange, and this message has lane keys"):
            lab.app.tasks["run"].apply_async(queue=queue, headers=lanes.headers(["lane"]))


def test_a_lane_key_with_a_control_character_is_refused(lab: Lab) -> None:
    with pytest.raises(ValueError, match="is not a lane key"):
        lab.publish("m", ["two\nlines"])
    assert lab.client.keys("lanes:*") == []


def publish_through(door: str, lab: Lab, options: dict[str, Any]) -> None:
    task = lab.app.tasks["run"]
    match door:
        case "apply_async":
            task.apply_async(**options)
        case "send_task":
            lab.app.send_task("run", **options)
        case "countdown":
            task.apply_async(countdown=5, **options)
        case "chain":
            (task.si().set(**options) | task.si().set(**options)).apply_async()
        case "batch":
            with lab.app.producer_pool.acquire(block=True) as producer, batch(producer):
                task.apply_async(producer=producer, **options)


@pytest.mark.parametrize("door", ["apply_async", "send_task", "countdown", "chain", "batch"])
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"lane_keys": [f"k{n}" for n in range(65)]}, "65 lane keys: a message has at most 64"),
        ({"lane_keys": ["k" * 257]}, "use a text of 1 to 256 bytes"),
        ({"lane_keys": ["ä" * 129]}, "use a text of 1 to 256 bytes"),
        ({"lane_keys": [7]}, "7 is not a lane key"),
        ({"lane_keys": "a"}, "'a' is not a list of lane keys"),
        ({"lane_keys": {"a": 1}}, "{'a': 1} is not a list of lane keys"),
        ({"lane_keys": None}, "None is not a list of lane keys"),
        *(
            ({"lane_keys": ["a"], "once": once}, "is not a scope and a number")
            for once in (5, [], ["a"], ["a", 1, 2], ["a", "1"], [7, 1], ["", 1], ["a", -1], ["a", 2**53], ["a", True])
        ),
        *(
            ({"lane_keys": ["a"], "lane_group": group}, "is not a group")
            for group in (5, ["talk"], ["talk", -1, 1, 1, False], ["talk", 1, 1, 2**60, False], ["", 1, 1, 1, False])
        ),
    ],
)
def test_lane_headers_that_a_worker_could_not_lease_are_refused(
    lab: Lab, door: str, given: dict[str, Any], sentence: str
) -> None:
    if door == "countdown" and "lane_group" in given:
        sentence = "a message of a group cannot have an eta or countdown"
    with pytest.raises(lanes.PublishRefused, match=re.escape(sentence)):
        publish_through(door, lab, {"queue": LANE_QUEUES[0], "headers": given})
    assert lab.client.keys("lanes:*") + lab.client.keys("orders.*") == []


def test_a_message_with_64_keys_of_256_bytes_runs(lab: Lab) -> None:
    keys = [f"{n:04}" + "ä" * 126 for n in range(64)]
    lab.publish("m", keys)
    lab.worker("solo")
    lab.drained()
    lab.check_once_each()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: lanes.headers("a"),  # type: ignore[arg-type]
        lambda: lanes.headers(["a"], once=5),  # type: ignore[arg-type]
        lambda: lanes.headers(["a"], group=lanes.Group("talk", 700, 5000, -1)),
    ],
)
def test_headers_that_cannot_be_published_are_refused_where_they_are_made(wrong: Callable[[], object]) -> None:
    with pytest.raises(lanes.PublishRefused):
        wrong()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"worker_prefetch_multiplier": 0}, "Error: worker_prefetch_multiplier must be at least 1"),
        ({"broker_url": "amqp://127.0.0.1"}, "Error: the broker amqp://"),
    ],
)
def test_a_worker_with_an_unsupported_setting_does_not_start(lab: Lab, settings: dict[str, Any], sentence: str) -> None:
    lab.publish("m", ["lane"])
    worker = lab.worker("solo", is_awaited=False, **settings)
    assert worker.exit_code() != 0
    assert sentence in worker.log
    assert "Traceback" not in worker.log
    assert lab.state_of("m") == "ready"


def test_a_worker_refuses_a_server_that_is_too_old(make_lab: LabMaker) -> None:
    with old_server() as url:
        worker = make_lab(url).worker("solo", is_awaited=False)
        assert worker.exit_code() != 0
    assert "Redis 6.0.16 is too old for lanes: use 6.2 or newer, or Valkey" in worker.log


@pytest.mark.parametrize("has_slots", [True, False])
def test_a_cluster_is_refused_before_anything_is_sent(make_lab: LabMaker, tmp_path: Path, has_slots: bool) -> None:
    with start_server(tmp_path, extra=["--cluster-enabled", "yes"]) as server, connect(server.url) as client:
        if has_slots:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            until(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))
        lab = make_lab(server.url)
        for consume_or_publish in (lab.app.connection_for_read().connect, lambda: lab.publish("m", ["lane"])):
            with pytest.raises(lanes.ServerUnfit, match="runs in cluster mode"):
                consume_or_publish()
        assert client.keys("*") == []


def test_an_app_with_another_transport_is_refused() -> None:
    app = Celery("other", broker="memory://", set_as_current=False)
    lanes.install(app)
    with pytest.raises(lanes.Misconfigured, match="not through lanes"):
        check_transport(app)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("sentinel://127.0.0.1:1", "a sentinel:// URL needs the name of the master"),
        ("redis://127.0.0.1:1/shop", "'shop' is not a database of Redis: use a number"),
        ("redis://127.0.0.1:1/0;redis://127.0.0.1:2/0", "several brokers are not supported"),
    ],
)
def test_a_worker_whose_broker_is_incomplete_says_so_in_one_sentence(tmp_path: Path, url: str, why: str) -> None:
    shop = f"from celery import Celery\nimport celery_lanes\napp = Celery('shop', broker='{url}')\n"
    (tmp_path / "shop.py").write_text(shop + "celery_lanes.install(app)\n")
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}", "PYTHONWARNINGS": "ignore"}
    ended = forks.run([*CELERY[:3], "-A", "shop", "worker"], tmp_path, env)
    assert f"cannot be used: {why}" in ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr
