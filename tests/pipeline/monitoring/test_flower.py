"""Flower shows each update with its kind, chat and id, but never its text, and the length of the queues."""

from __future__ import annotations

import re
from typing import Any

import pytest
import requests

from celery_lanes.embedded_server import free_port
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import BOT_ID, Pipeline, message
from tests.support.waiting import until

HIDDEN = "nobody-else-may-read-this"


class Flower:
    """A Flower process and its HTTP interface."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._url = f"http://127.0.0.1:{(port := free_port())}"
        self._session = requests.Session()
        self._session.trust_env = False
        self.process = pipeline.flower(port)
        until(self._is_up)

    def _is_up(self) -> bool:
        assert self.process.is_running(), self.process.log
        try:
            return self._session.get(f"{self._url}/healthcheck", timeout=30).ok
        except requests.ConnectionError:
            return False

    def page(self, path: str) -> str:
        response = self._session.get(f"{self._url}/{path}", timeout=30)
        return response.text if response.ok else ""

    def api(self, path: str) -> Any:
        response = self._session.get(f"{self._url}/api/{path}", timeout=30)
        return response.json() if response.ok else {}

    def knows(self, worker: str) -> bool:
        """True if Flower lists this worker. From then on it receives all events of the worker."""
        return worker in self.api("workers?status=true")

    def task(self, update: int) -> dict[str, Any]:
        return dict(self.api("tasks").get(f"{BOT_ID}:{update}", {}))

    def row(self, update: int) -> dict[str, Any]:
        """The update in the table of tasks."""
        query = {"draw": 1, "start": 0, "length": 50, "order[0][column]": 0, "columns[0][data]": "received"}
        found = self._session.get(f"{self._url}/tasks/datatable", params=query, timeout=30).json()["data"]
        return next(dict(row) for row in found if row["uuid"] == f"{BOT_ID}:{update}")

    def terminate(self, update: int) -> None:
        answer = self._session.post(f"{self._url}/api/task/revoke/{BOT_ID}:{update}?terminate=true", timeout=30)
        answer.raise_for_status()

    def lengths(self) -> dict[str, int]:
        return {queue["name"]: queue["messages"] for queue in self.api("queues/length").get("active_queues", [])}

    def close(self) -> None:
        self._session.close()


@pytest.mark.first_only
@pytest.mark.parametrize("fast", [1, 0])
def test_flower_shows_updates_without_their_text(make_pipeline: MakePipeline, fast: int) -> None:
    # Given Flower and a worker that it lists
    pipeline = make_pipeline(MAX_ATTEMPTS=2, RETRY_BACKOFF=0.01, FAST=fast)
    flower = Flower(pipeline)
    worker = pipeline.worker("prefork", 1)
    until(lambda: flower.knows("w1@test"))
    # When one update succeeds, one succeeds in its second attempt, and one always fails
    good, again, failing = pipeline.push(
        message(1, 5, do=HIDDEN), message(2, -6, 9, do=f"fails:1 {HIDDEN}"), message(3, 7, do=f"fails:9 {HIDDEN}")
    )
    pipeline.poller()
    pipeline.drained()
    # Then each is shown under its own id, with kind, chat and update
    for update, chat, state in [(good, 5, "SUCCESS"), (again, -6, "SUCCESS"), (failing, 7, "FAILURE")]:
        until(lambda: flower.task(update).get("state") == state)  # noqa: B023 - waited for here
        task = flower.task(update)
        assert task["name"] == "tasks.update"
        assert task["args"] == f"(message, chat {chat}, update {update})"
        assert task["kwargs"] == "{}"
        row = flower.row(update)
        attempt = 1 if update == good else 2
        assert (row["kind"], row["chat"], row["attempt"]) == ("message", str(chat), attempt)
    # And its table has these columns
    columns = re.findall(r'data-column="(\w+)"', flower.page("tasks"))
    assert columns == ["uuid", "kind", "chat", "attempt", "state", "received", "runtime", "worker"]
    # And failures are shown with their traceback
    assert flower.task(good)["retried"] is None
    assert flower.task(again)["retried"]
    assert "RuntimeError: attempt 1 of" in flower.task(again)["traceback"]
    assert flower.task(failing)["exception"] == f"RuntimeError('attempt 2 of {failing}')"
    assert "in handle" in flower.task(failing)["traceback"]
    # And neither Flower nor the worker's log contains the text
    pages = [flower.page(f"task/{BOT_ID}:{update}") for update in (good, again, failing)]
    assert all("tasks.update" in page for page in pages)
    assert HIDDEN not in "".join([*pages, str(flower.api("tasks")), flower.page("tasks"), worker.log])
    flower.close()


def test_flower_shows_an_update_that_waits_for_its_next_attempt(make_pipeline: MakePipeline) -> None:
    # Given a worker, and Flower, which is started after it
    pipeline = make_pipeline(RETRY_BACKOFF=60)
    pipeline.worker("threads", 1)
    flower = Flower(pipeline)
    until(lambda: flower.knows("w0@test"))
    [failing] = pipeline.push(message(1, 5, do="fails:9"))
    pipeline.poller()
    until(lambda: flower.task(failing).get("state") == "RETRY")
    assert "RuntimeError: attempt 1 of" in flower.task(failing)["traceback"]
    flower.close()


def test_a_port_in_use_is_reported_without_a_traceback(pipeline: Pipeline) -> None:
    taken = int(pipeline.simulator.url.rpartition(":")[2])
    flower = pipeline.flower(taken)
    assert flower.exit_code() == 1
    assert (
        flower.log.strip().splitlines()[-1].startswith(f"cannot listen on 127.0.0.1:{taken} (Address already in use)")
    )
    assert "Traceback" not in flower.log


def test_flower_shows_how_many_updates_are_ready_in_each_queue(make_pipeline: MakePipeline) -> None:
    # Given a worker that is busy, and the updates of eight other chats
    pipeline = make_pipeline(QUEUES=2)
    flower = Flower(pipeline)
    pipeline.worker("prefork", 1)
    until(lambda: flower.knows("w1@test"))
    [busy] = pipeline.push(message(1, 100, do="gate:a"))
    pipeline.poller()
    pipeline.started(busy)
    pipeline.push(*(message(n, chat) for n in (1, 2) for chat in range(1, 9)))
    # Then the first update of each chat is counted in its queue, when the worker prefetches no more
    until(lambda: sum(flower.lengths().values()) == 8)
    lengths = flower.lengths()
    assert set(lengths) == {"broadcasts.0", "celery", "updates.0", "updates.1", "updates.express"}
    assert lengths["updates.0"] == pipeline.redis.llen("updates.0") > 0
    assert lengths["updates.1"] == pipeline.redis.llen("updates.1") > 0
    # And Flower's broker page shows the queues in one row that opens, and no password, because there is none
    page = flower.page("broker")
    [row] = re.findall(r"<summary>updates\.\*, all lanes .*?</details>", page)
    assert re.findall(r"<li>(updates\.\w+): \d+ ready</li>", row) == ["updates.0", "updates.1", "updates.express"]
    assert "<td>updates.0</td>" not in page
    assert str(pipeline.settings["REDIS_URL"]) in page
    pipeline.open("a")
    pipeline.drained()
    until(lambda: sum(flower.lengths().values()) == 0)
    flower.close()


@pytest.mark.parametrize(("pool", "slots"), [("prefork", 1), ("threads", 2), ("gevent", 5)])
def test_flowers_terminate_button_buries_the_update(make_pipeline: MakePipeline, pool: str, slots: int) -> None:
    # Given an update that runs, and another of its chat
    pipeline = make_pipeline()
    flower = Flower(pipeline)
    pipeline.worker(pool, slots)
    until(lambda: flower.knows("w1@test"))
    unwanted, behind = pipeline.push(message(1, 5, do="gate:never"), message(2, 5))
    pipeline.poller()
    pipeline.started(unwanted)
    # When a user terminates it in Flower
    flower.terminate(unwanted)
    # Then it is buried with the name of the requesting program, its chat continues, and Flower shows it as revoked
    pipeline.ended(behind)
    until(lambda: pipeline.dead() == [f"{BOT_ID}:{unwanted}"])
    [problem] = pipeline.problems(f"{BOT_ID}:{unwanted}")
    assert problem["type"] == "Terminated"
    assert "asked by flower (pid " in problem["message"]
    until(lambda: flower.task(unwanted).get("state") == "REVOKED")
    pipeline.open("never")
