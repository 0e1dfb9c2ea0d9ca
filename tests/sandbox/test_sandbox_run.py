"""`chatlanes sandbox`, which is what `make run` runs: real processes, from start to Ctrl-C."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
import requests

from celery_lanes.embedded_server import start_server
from chatlanes_sandbox.simulator import start
from tests.sandbox.calling import text_update, wait_until
from tests.sandbox.sandboxes import SandboxProcess


def test_without_a_token_it_answers_simulated_chats_in_order(
    sandbox: Callable[..., SandboxProcess], tmp_path: Path
) -> None:
    running = sandbox("--rate", "30", "--chats", "8")
    # Given a sandbox that says where to look
    login = running.wait_for(rf"Flower +http://(admin):(\S+)@127.0.0.1:{running.ports['flower']}\n").groups()
    running.wait_for(rf"Bot API +{running.url('simulator')} \(simulated")
    # When it has run for a while
    running.wait_for(r"report .*: [1-9][\d,]* handled, .* · [1-9][\d,]* answered, in order, none twice")
    # Then Flower knows its worker and its tasks
    tasks = f"{running.url('flower')}/api/tasks"
    assert requests.get(tasks, timeout=10).status_code == 401
    wait_until(lambda: requests.get(tasks, auth=login, timeout=10).json())
    # And Ctrl-C ends it in order, nothing left behind
    running.ctrl_c()
    assert running.end() == 0
    assert re.search(r"^[\d,]+ updates: .* answered, in order, none twice", running.said, re.MULTILINE)
    assert "Traceback" not in running.said
    # And the data is there for the next run, which answers its own chats in order
    assert (tmp_path / ".data/redis/appendonlydir").is_dir()
    again = sandbox("--rate", "30", "--chats", "8", "--workers", "1")
    again.wait_for(r"report .*: [1-9][\d,]* handled, .* answered, in order, none twice")
    again.ctrl_c()
    assert again.end() == 0


NOTING_BOT = """
with open("imports", "a") as file:
    file.write("x")
def handle(ctx):
    ctx.reply(open("imports").read())
"""


@pytest.mark.exhaustive
def test_the_start_ends_with_one_line_and_one_import(sandbox: Callable[..., SandboxProcess], tmp_path: Path) -> None:
    # Given a folder with a bot, and a setting with a wrong name
    (tmp_path / "noting_bot.py").write_text(NOTING_BOT)
    (tmp_path / ".env").write_text("MAX_ATTEMPT=3\nno line\n")
    running = sandbox("--workers", "1", "--bot", "noting_bot:handle")
    # Then the sandbox says what it does, and when it is ready
    running.wait_for("loading noting_bot:handle …")
    running.wait_for(rf"ready: open {running.url('simulator')}, write to the bot\n$")
    # When a user writes at once, then the bot was imported by one process
    simulator = running.simulator()
    simulator.push(text_update("hello"))
    wait_until(lambda: simulator.calls("sendMessage"))
    assert simulator.calls("sendMessage")[0]["params"]["text"] == "x"
    running.ctrl_c()
    assert running.end() == 0
    # And each mistake is reported once, whichever parts read the settings
    assert running.said.count("MAX_ATTEMPT is not a setting; did you mean MAX_ATTEMPTS?") == 1
    assert running.said.count(".env, line 2 is ignored: it is not NAME=value") == 1
    assert "dotenv" not in running.said
    assert "SecurityWarning" not in running.said
    assert (tmp_path / ".data/.gitignore").read_text() == "*\n"


@pytest.mark.exhaustive
def test_a_bot_in_the_folder_is_suggested(sandbox: Callable[..., SandboxProcess], tmp_path: Path) -> None:
    (tmp_path / "slow_bot.py").write_text(SLOW_BOT)
    running = sandbox("--no-stream", "--workers", "1")
    running.wait_for("This folder seems to hold a bot. To run it: chatlanes sandbox --bot slow_bot:handle\n")
    running.wait_for("Ctrl-C stops everything")


SLOW_BOT = """
import time
def handle(ctx):
    ctx.call("sendChatAction", chat_id=ctx.chat_id, action="typing")
    time.sleep(1)
    ctx.reply(ctx.update["message"]["text"])
"""


@pytest.mark.exhaustive
def test_at_the_end_running_updates_finish(sandbox: Callable[..., SandboxProcess], tmp_path: Path) -> None:
    # Given a handler in the middle of its work
    (tmp_path / "slow_bot.py").write_text(SLOW_BOT)
    running = sandbox("--workers", "1", "--bot", "slow_bot:handle")
    running.pid("worker")
    simulator = running.simulator()
    simulator.push(text_update("hello #1"))
    wait_until(lambda: simulator.calls("sendChatAction"))
    # When everything is stopped
    running.ctrl_c()
    # Then it still answers: the Bot API and Redis outlive it
    assert running.end() == 0
    last = "1 update: 1 handled, 0 waiting · 1 answered, in order, none twice · 1 message sent\n"
    assert running.said.endswith(last)
    simulator.stop()


@pytest.mark.exhaustive
def test_a_terminal_that_is_closed_leaves_nothing_running(
    sandbox: Callable[..., SandboxProcess], tmp_path: Path
) -> None:
    running = sandbox("--no-stream", "--workers", "1")
    parts = [running.pid(part) for part in ("poller", "worker", "flower", "report")]
    running.close_terminal()
    assert running.end() == 0
    for pid in parts:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    # Not even Redis: another one can have its directory
    start_server(tmp_path / ".data/redis").stop()


@pytest.mark.exhaustive
def test_one_for_a_directory_whose_killed_parts_are_restarted_unless_redis_died(
    sandbox: Callable[..., SandboxProcess],
) -> None:
    running = sandbox("--no-stream", "--workers", "1")
    running.wait_for("Ctrl-C stops everything")
    # A second one in the same directory is refused, and leaves the first one alone
    second = sandbox("--no-stream")
    assert second.end() == 1
    assert "is using" in second.said
    assert "stop the other sandbox, or pass --data DIR" in second.said
    assert running.process.poll() is None
    # Given parts that were killed
    for part in ("poller", "worker", "flower"):
        os.kill(running.pid(part), signal.SIGKILL)
    # Then all of them are there again, and the bot answers
    for part in ("poller", "worker", "flower"):
        running.wait_for(rf"(?s){part} stopped \(rc=-9\).*{part} started")
    simulator = running.simulator()
    simulator.push(text_update("hello #1"))
    wait_until(lambda: simulator.answers())
    # But without Redis everything stops
    with redis.Redis(port=running.ports["redis"]) as client:
        os.kill(client.info("server")["process_id"], signal.SIGKILL)
    assert running.end() == 1
    assert "redis ended by itself, so everything was stopped" in running.said


@pytest.mark.exhaustive
def test_with_a_token_it_serves_that_bot_on_the_redis_it_is_given(
    sandbox: Callable[..., SandboxProcess], tmp_path: Path
) -> None:
    with start("9:REAL") as telegram, start_server(tmp_path / "elsewhere") as lanes:
        running = sandbox(BOT_TOKEN="9:REAL", BOT_API_URL=telegram.url, REDIS_URL=lanes.url)
        telegram.push(text_update("hello #1", chat=5))
        wait_until(lambda: telegram.answers() == {5: [1]})
        running.ctrl_c()
        assert running.end() == 0
    assert "9:REAL" not in running.said
    assert "report" not in running.said
    assert not (tmp_path / ".data").exists()


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("variables", "code", "sentence"),
    [
        ({"QUEUES": "none"}, 2, "QUEUES=none: allowed is a whole number from 1 to 1,024"),
        ({"BOT": "nowhere:handle", "BOT_TOKEN": "9:REAL"}, 1, "nowhere"),
        ({"REDIS_URL": "redis://127.0.0.1:1/0"}, 1, "Connection refused. Start or correct it, or unset REDIS_URL: "),
    ],
)
def test_an_error_is_one_sentence(
    sandbox: Callable[..., SandboxProcess], variables: dict[str, str], code: int, sentence: str
) -> None:
    running = sandbox("--no-stream", **variables)
    assert running.end() == code
    last = running.said.strip().splitlines()[-1]
    assert sentence in last
    assert "Traceback" not in running.said
