"""`chatlanes lanes …` beside a poller and a worker that run."""

from __future__ import annotations

import json
import subprocess

from tests.support import ROOT
from tests.support.pipeline import BOT_ID, CELERY, Pipeline, message


def said(pipeline: Pipeline, *arguments: str, code: int = 0) -> str:
    """What a command prints that ends with this code."""
    env = {name: str(value) for name, value in pipeline.settings.items()}
    env |= {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "NO_PROXY": "127.0.0.1"}
    command = [*CELERY, "lanes", *arguments]
    ran = subprocess.run(command, cwd=pipeline.directory, env=env, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stderr) == (code, ""), ran.stdout + ran.stderr
    assert pipeline.secret not in ran.stdout
    return ran.stdout


def test_an_operator_sees_pauses_mends_and_checks(pipeline: Pipeline) -> None:
    # Given a chat whose first update runs, and one that is poison
    pipeline.poller()
    pipeline.worker("threads", 4, MAX_ATTEMPTS=1)
    slow, _, poison = pipeline.push(message(1, 7, do="gate:a"), message(2, 7), message(1, 8, do="fails:1"))
    pipeline.started(slow)
    pipeline.some_ended(0)
    # Then all is as it should be, and it is told who holds the chat up
    lines = said(pipeline, "check").splitlines()
    assert {line[:5] for line in lines} == {"ok   "}
    assert [line for line in lines if "intake: " in line and line.endswith(" polls, 0 updates wait at Telegram")]
    assert [line for line in lines if "@test holds " in line]
    status = json.loads(said(pipeline, "status", "--json"))
    [crowd] = status["lanes"]
    assert (crowd["lane"], crowd["waiting"], crowd["first"]["state"]) == (f"{BOT_ID}/chat:7", 1, "leased")
    assert crowd["first"]["title"] == f"message, chat 7, update {slow}"
    # When the chat is paused, and its first update ends
    assert said(pipeline, "pause", "chat", "7") == f"paused {BOT_ID}/chat:7\n"
    pipeline.open("a")
    pipeline.ended(slow)
    # Then the next one waits until it is resumed
    assert "1 in the lane, paused since" in said(pipeline, "chat", "7")
    assert said(pipeline, "resume", "chat", "7") == f"resumed {BOT_ID}/chat:7\n"
    pipeline.drained()
    # And the poison is in the dead letters, from where it comes back into its lane
    assert f"{BOT_ID}:{poison}" in said(pipeline, "dead", "list", "--chat", "8")
    assert "RuntimeError" in said(pipeline, "dead", "show", f"{BOT_ID}:{poison}")
    assert said(pipeline, "dead", "replay", "--all") == "replayed 1 update\n"
    pipeline.drained()
    assert pipeline.happened("start").count(poison) == 2
    assert said(pipeline, "dead", "drop", "--all", "--yes") == "dropped 1 update\n"
    assert pipeline.leftovers() == []
