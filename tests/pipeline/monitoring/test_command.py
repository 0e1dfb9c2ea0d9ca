"""`chatlanes lanes …` while a poller and a worker run."""

from __future__ import annotations

import json

from tests.support import ROOT, forks
from tests.support.outside import IMPORTED
from tests.support.pipeline import BOT_ID, CELERY, Pipeline, message


def command_output(pipeline: Pipeline, *arguments: str, code: int = 0) -> str:
    """The output of a `lanes` command that exits with this code."""
    env = {name: str(value) for name, value in pipeline.settings.items()}
    env |= {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "NO_PROXY": "127.0.0.1"}
    command = [*CELERY, "lanes", *arguments]
    ran = forks.run(command, pipeline.directory, env, IMPORTED)
    assert (ran.returncode, ran.stderr) == (code, ""), ran.stdout + ran.stderr
    assert pipeline.secret not in ran.stdout
    return ran.stdout


def test_check_status_pause_and_dead_letters(pipeline: Pipeline) -> None:
    # Given a chat whose first update runs, and a chat with an update that fails
    pipeline.poller()
    pipeline.worker("threads", 4, MAX_ATTEMPTS=1)
    slow, _, poison = pipeline.push(message(1, 7, do="gate:a"), message(2, 7), message(1, 8, do="fails:1"))
    pipeline.started(slow)
    pipeline.some_ended(0)
    # Then the check passes, and the status names the update that the chat waits for
    lines = command_output(pipeline, "check").splitlines()
    assert {line[:5] for line in lines} == {"ok   "}
    assert [line for line in lines if "intake: " in line and line.endswith(" polls, 0 updates wait at Telegram")]
    assert [line for line in lines if "@test holds " in line]
    status = json.loads(command_output(pipeline, "status", "--json"))
    [lane] = status["lanes"]
    assert (lane["lane"], lane["waiting"], lane["first"]["state"]) == (f"{BOT_ID}/chat:7", 1, "leased")
    assert lane["first"]["title"] == f"message, chat 7, update {slow}"
    # When the chat is paused, and its first update ends
    assert command_output(pipeline, "pause", "chat", "7") == f"paused {BOT_ID}/chat:7\n"
    pipeline.open("a")
    pipeline.ended(slow)
    # Then the next one waits until the chat is resumed
    assert "1 in the lane, paused since" in command_output(pipeline, "chat", "7")
    assert command_output(pipeline, "resume", "chat", "7") == f"resumed {BOT_ID}/chat:7\n"
    pipeline.drained()
    # And the failed update is in the dead letters, and a replay runs it again
    assert f"{BOT_ID}:{poison}" in command_output(pipeline, "dead", "list", "--chat", "8")
    assert "RuntimeError" in command_output(pipeline, "dead", "show", f"{BOT_ID}:{poison}")
    assert command_output(pipeline, "dead", "replay", "--all") == "replayed 1 update\n"
    pipeline.drained()
    assert pipeline.happened("start").count(poison) == 2
    assert command_output(pipeline, "dead", "drop", "--all", "--yes") == "dropped 1 update\n"
    assert pipeline.leftovers() == []
