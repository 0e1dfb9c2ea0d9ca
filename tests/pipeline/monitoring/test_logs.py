"""Logs of all processes: every line about an update has its ids, JSON if configured, and never a text or a token."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests

from celery_lanes.embedded_server import free_port
from celery_lanes.protocol import NewMessage, Store
from celery_lanes.protocol.envelope import pack_task
from chatlanes.settings import secret_from
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.monitoring.collector import Collector
from tests.support.pipeline import BOT_ID, SECRET, TOKEN, Pipeline, message
from tests.support.process import Process
from tests.support.waiting import WITHIN_S, until

#: Part of every message.
TEXT = "PRIVATE-words"
#: A bot that logs while it is imported, before logging is set up, and then fails.
BROKEN = "import logging\nlogging.getLogger('mybot').warning('half way')\nraise RuntimeError('not today')\n"
#: The id of the update that arrives by webhook.
WEBHOOK_UPDATE = 900_000
HOOK_SECRET = {"X-Telegram-Bot-Api-Secret-Token": secret_from(TOKEN)}


def push_all_cases(pipeline: Pipeline) -> dict[str, int]:
    """Push an update for each possible outcome, and malformed ones. Returns the update ids by outcome."""
    for chat, fault in ((3, {"status": 400}), (4, {"status": 502}), (5, {"reset": True})):
        pipeline.simulator.fault(method="sendMessage", chat_id=chat, **fault)
    pipeline.simulator.fault(method="sendMessage", chat_id=6, status=429, retry_after=1)
    orders = ["logs:it logs_token:it", "fails:1", "", "", "", "", "refuses:it"]
    ids = pipeline.push(*(message(chat, chat, do=f"{TEXT} {do} says:{TEXT}") for chat, do in enumerate(orders, 1)))
    pipeline.simulator.push_raw({"message": {"text": TEXT}}, TEXT)
    bad = NewMessage("bad", "updates.0", pack_task("tasks.update", "()", f'[["{TEXT}'.encode()), [])
    worse = NewMessage("worse", "updates.0", pack_task("no.such.task", "()", f'[["{TEXT}"]]'.encode()), [])
    Store(pipeline.redis).append([bad, worse])
    return dict(zip(("logged", "failed", "400", "502", "reset", "429", "buried"), ids, strict=True))


def post_all_cases(pipeline: Pipeline) -> Process:
    """Post to a webhook receiver: a valid update, one without an id, and malformed JSON."""
    receiver = pipeline.receiver(port := free_port(), "-v")
    update = {"update_id": WEBHOOK_UPDATE, **message(1, 900, do=TEXT)}
    bodies = [json.dumps(update), json.dumps({"update_id": None, "message": {"text": TEXT}}), f'{{"text": "{TEXT}']
    for body, status in zip(bodies, (200, 200, 400), strict=True):
        headers = {**HOOK_SECRET, "Content-Type": "application/json"}
        answer = requests.post(f"http://127.0.0.1:{port}/hook", body, headers=headers, timeout=WITHIN_S)
        assert answer.status_code == status
    return receiver


@pytest.mark.parametrize(("log_format", "pool", "slots"), [("json", "prefork", 2), ("text", "gevent", 9)])
def test_every_log_line_has_ids_and_none_has_a_text_or_token(
    make_pipeline: MakePipeline, collector: Collector, log_format: str, pool: str, slots: int
) -> None:
    # Given processes with debug logs and traces
    settings = {"LOG_FORMAT": log_format, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.address}
    pipeline = make_pipeline(**settings, BOT="tests.support.bots:bot", RETRY_BACKOFF=0.01)
    worker = pipeline.worker(pool, slots, "-l", "DEBUG")
    processes = [pipeline.poller("-v"), worker, post_all_cases(pipeline)]
    # When updates with every possible outcome have run, and the processes stop
    updates = push_all_cases(pipeline)
    pipeline.ended(*(update for outcome, update in updates.items() if outcome != "buried"))
    until(lambda: pipeline.pending() == 0)
    for process in processes:
        process.stop()
    # Then no log line and no trace contains a text or a token
    for process in processes:
        assert TEXT not in process.log
        assert TOKEN not in process.log
    assert TEXT.encode() not in collector.raw
    assert SECRET.encode() not in collector.raw
    # And the update that arrived by webhook has a single trace
    [created], [run] = (collector.of_update(f"{BOT_ID}:{WEBHOOK_UPDATE}", name) for name in ("create", "process"))
    assert (created.process[0], run.process[0], run.parent) == ("chatlanes-receiver", "chatlanes-worker", created.id)
    # And the log lines of a handler, and of the code it calls, name its update
    logged = f"{BOT_ID}:{updates['logged']}"
    if log_format == "text":
        for words in ("handled it", "in a thread it", "printed it", "emptied it"):
            [line] = [line for line in worker.log.splitlines() if words in line]
            assert f" {words} [update={logged} chat=1 attempt=1 trace_id=" in line
        return
    lines = {process.name: lines_of(process) for process in processes}
    for words in ("handled it", "in a thread it", "printed it", "emptied it"):
        [line] = [line for line in lines[worker.name] if line["message"] == words]
        assert {"update": logged, "bot": BOT_ID, "chat": 1, "attempt": 1, "worker": "w0@test"}.items() <= line.items()
    # And so do Celery's own lines, with the traceback as a field
    [failure] = [line for line in lines[worker.name] if "raised unexpected" in line["message"]]
    assert (failure["update"], failure["chat"]) == (f"{BOT_ID}:{updates['buried']}", 7)
    assert "BotRefusedError" in failure["traceback"]
    assert {line["bot"] for line in lines[processes[0].name]} == {BOT_ID}


def lines_of(process: Process) -> list[dict[str, Any]]:
    """The log lines; each one is a JSON object."""
    return [json.loads(line) for line in process.log.splitlines()]


def test_failed_starts_flower_and_metrics_log_json(make_pipeline: MakePipeline) -> None:
    # Given a bot that cannot be imported, a missing token, Flower with a password, and the metrics server
    pipeline = make_pipeline(LOG_FORMAT="json")
    (pipeline.directory / "broken.py").write_text(BROKEN)
    broken = pipeline.worker("prefork", 1, is_awaited=False, BOT="broken:handle")
    without_token = pipeline.poller(BOT_TOKEN="")
    flower = pipeline.flower(free_port(), FLOWER_UNAUTHENTICATED_API="")
    metrics = pipeline.command("lanes", "metrics", "--port", "0")
    # When they have exited or started
    assert (broken.exit_code(), without_token.exit_code()) == (2, 2)
    flower.tells("Visit me")
    metrics.tells("/metrics")
    # Then all their output is JSON
    assert lines_of(broken)[-2]["message"] == "half way"
    assert "not today" in lines_of(broken)[-1]["traceback"]
    assert lines_of(without_token)[-1]["message"].startswith("BOT_TOKEN is not set")
    assert any("login is user admin" in line["message"] for line in lines_of(flower))
    assert lines_of(metrics)[-1]["level"] == "INFO"
