"""What the processes log: ids in every line about an update, JSON where it is asked for, never a text or a token."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests

from chatlanes.lanes.protocol.commands import NewMessage
from chatlanes.lanes.protocol.envelope import pack_task
from chatlanes.lanes.protocol.store import Store
from chatlanes.poller.webhook.validation import secret_from
from chatlanes.sandbox.ports import free_port
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.monitoring.collector import Collector
from tests.support.pipeline import BOT_ID, SECRET, TOKEN, Pipeline, message
from tests.support.process import Process
from tests.support.waiting import WITHIN_S, until

#: Stands in every message.
TEXT = "PRIVATE-words"
#: Has something to say before there is a log.
BROKEN = "import logging\nlogging.getLogger('mybot').warning('half way')\nraise RuntimeError('not today')\n"
#: The id of the update that comes by webhook.
HOOKED = 900_000
HOOK_SECRET = {"X-Telegram-Bot-Api-Secret-Token": secret_from(TOKEN)}


def happens(pipeline: Pipeline) -> dict[str, int]:
    """One update for each thing that may become of one, and what is none; gives the ids by what happens."""
    for chat, fault in ((3, {"status": 400}), (4, {"status": 502}), (5, {"reset": True})):
        pipeline.simulator.fault(method="sendMessage", chat_id=chat, **fault)
    pipeline.simulator.fault(method="sendMessage", chat_id=6, status=429, retry_after=1)
    story = ["logs:it leaks:it", "fails:1", "", "", "", "", "refuses:it"]
    ids = pipeline.push(*(message(chat, chat, do=f"{TEXT} {do} says:{TEXT}") for chat, do in enumerate(story, 1)))
    pipeline.simulator.push_raw({"message": {"text": TEXT}}, TEXT)
    bad = NewMessage("bad", "updates.0", pack_task("tasks.update", "()", f'[["{TEXT}'.encode()), [])
    worse = NewMessage("worse", "updates.0", pack_task("no.such.task", "()", f'[["{TEXT}"]]'.encode()), [])
    Store(pipeline.redis).append([bad, worse])
    return dict(zip(("logged", "failed", "400", "502", "reset", "429", "buried"), ids, strict=True))


def received(pipeline: Pipeline) -> Process:
    """The same by webhook: an update, one without an id, and what is none."""
    receiver = pipeline.receiver(port := free_port(), "-v")
    update = {"update_id": HOOKED, **message(1, 900, do=TEXT)}
    bodies = [json.dumps(update), json.dumps({"update_id": None, "message": {"text": TEXT}}), f'{{"text": "{TEXT}']
    for body, status in zip(bodies, (200, 200, 400), strict=True):
        headers = {**HOOK_SECRET, "Content-Type": "application/json"}
        answer = requests.post(f"http://127.0.0.1:{port}/hook", body, headers=headers, timeout=WITHIN_S)
        assert answer.status_code == status
    return receiver


@pytest.mark.parametrize(("log_format", "pool", "slots"), [("json", "prefork", 2), ("text", "gevent", 9)])
def test_ids_are_in_every_line_and_texts_and_tokens_in_none(
    make_pipeline: MakePipeline, collector: Collector, log_format: str, pool: str, slots: int
) -> None:
    # Given processes that log all they can, and trace it
    told = {"LOG_FORMAT": log_format, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.address}
    pipeline = make_pipeline(**told, BOT="tests.support.bots:bot", RETRY_BACKOFF=0.01)
    worker = pipeline.worker(pool, slots, "-l", "DEBUG")
    processes = [pipeline.poller("-v"), worker, received(pipeline)]
    # When everything happens that can, and they stop
    happened = happens(pipeline)
    pipeline.ended(*(update for what, update in happened.items() if what != "buried"))
    until(lambda: pipeline.pending() == 0)
    for process in processes:
        process.stop()
    # Then no line, and no trace, holds a text or a token
    for process in processes:
        assert TEXT not in process.log
        assert TOKEN not in process.log
    assert TEXT.encode() not in collector.raw
    assert SECRET.encode() not in collector.raw
    # And what came by webhook has a trace in one piece
    [created], [run] = (collector.of_update(f"{BOT_ID}:{HOOKED}", what) for what in ("create", "process"))
    assert (created.of[0], run.of[0], run.parent) == ("chatlanes-receiver", "chatlanes-worker", created.id)
    # And the lines of a handler, and of whatever it calls, say which update they are of
    logged = f"{BOT_ID}:{happened['logged']}"
    if log_format == "text":
        for words in ("handled it", "beside it", "printed it", "emptied it"):
            [line] = [line for line in worker.log.splitlines() if words in line]
            assert f" {words} [update={logged} chat=1 attempt=1 trace_id=" in line
        return
    lines = {process.name: lines_of(process) for process in processes}
    for words in ("handled it", "beside it", "printed it", "emptied it"):
        [line] = [line for line in lines[worker.name] if line["message"] == words]
        assert {"update": logged, "bot": BOT_ID, "chat": 1, "attempt": 1, "worker": "w0@test"}.items() <= line.items()
    # And so do Celery's own, with what went wrong as a field
    [failure] = [line for line in lines[worker.name] if "raised unexpected" in line["message"]]
    assert (failure["update"], failure["chat"]) == (f"{BOT_ID}:{happened['buried']}", 7)
    assert "BotRefusedError" in failure["traceback"]
    assert {line["bot"] for line in lines[processes[0].name]} == {BOT_ID}


def lines_of(process: Process) -> list[dict[str, Any]]:
    """Every line is an object, from the first to the last."""
    return [json.loads(line) for line in process.log.splitlines()]


def test_commands_that_end_or_only_serve_write_json_too(make_pipeline: MakePipeline) -> None:
    # Given a bot that does not import, a token that is missing, Flower behind a password, and the metrics
    pipeline = make_pipeline(LOG_FORMAT="json")
    (pipeline.directory / "broken.py").write_text(BROKEN)
    broken = pipeline.worker("prefork", 1, is_awaited=False, BOT="broken:handle")
    without_token = pipeline.poller(BOT_TOKEN="")
    flower = pipeline.flower(free_port(), FLOWER_UNAUTHENTICATED_API="")
    metrics = pipeline.command("lanes", "metrics", "--port", "0")
    # When they have said what they have to say
    assert (broken.exit_code(), without_token.exit_code()) == (1, 1)
    flower.tells("Visit me")
    metrics.tells("/metrics")
    # Then all of it is JSON
    assert lines_of(broken)[-2]["message"] == "half way"
    assert "not today" in lines_of(broken)[-1]["traceback"]
    assert lines_of(without_token)[-1]["message"].startswith("BOT_TOKEN is not set")
    assert any("login is user admin" in line["message"] for line in lines_of(flower))
    assert lines_of(metrics)[-1]["level"] == "INFO"
