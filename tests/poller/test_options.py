"""Options of the poller as a process; and the programs of docs/intake.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from celery_lanes.protocol import connect, keys
from chatlanes_sandbox.simulator import Simulator
from tests.poller.conftest import StartPoller
from tests.poller.lanes import lane
from tests.support import ROOT
from tests.support.bot_api import BOT_ID, TOKEN, message
from tests.support.outside import outside
from tests.support.waiting import WITHIN_S, until

DOCS = ROOT / "docs" / "intake.md"


def test_custom_filter_drops_counts_and_confirms(
    simulator: Simulator, start_poller: StartPoller, redis_url: str, tmp_path: Path
) -> None:
    # Given a filter that accepts one text, and fails on updates without a message
    (tmp_path / "own.py").write_text("def wanted(update):\n    return update['message']['text'] == 'yes'\n")
    pushed = simulator.push(message("yes"), message("no"), {"callback_query": {"from": {"id": 7}}}, message("no"))
    # When a poller runs with it
    poller = start_poller(FILTER="own:wanted")
    # Then all are confirmed, and the lane has the accepted update and the one that it failed on
    until(lambda: simulator.stats()["confirmed"] == 4)
    assert lane(redis_url) == [pushed[0], pushed[2]]
    poller.stop()
    assert poller.told("4 updates so far: 2 added, 0 seen before, 0 buried, 2 filtered out; backlog 2")
    assert len(poller.told("FILTER failed for update")) == len(poller.told("KeyError: 'message'")) == 1


def test_missing_filter_ends_the_poller(simulator: Simulator, start_poller: StartPoller) -> None:
    poller = start_poller(FILTER="no_such:filter")
    assert poller.exit_code() == 2
    assert poller.told("FILTER=no_such:filter: there is no module no_such")


def test_order_by_bot_uses_one_lane(simulator: Simulator, start_poller: StartPoller, redis_url: str) -> None:
    pushed = simulator.push(message(chat=7), {"poll": {"id": "1"}}, message(chat=8))
    start_poller(ORDER_BY="bot")
    until(lambda: simulator.stats()["confirmed"] == 3)
    with connect(redis_url) as client:
        assert client.keys(f"{keys.LANE}*") == [keys.lane(f"{BOT_ID}/bot").encode()]
        ids = client.zrange(keys.lane(f"{BOT_ID}/bot"), 0, -1)
    assert ids == [f"{BOT_ID}:{update_id}".encode() for update_id in pushed]


def test_retries_of_telegram_can_be_limited(simulator: Simulator, start_poller: StartPoller) -> None:
    simulator.fault(method="getUpdates", status=502, times=1000)
    poller = start_poller(POLL_GIVE_UP_AFTER=1, POLL_RETRY_MAX=0.2)
    assert poller.exit_code() == 1
    assert re.search(r"Telegram: 502 .*; gave up after [1-9][0-9]*\.[0-9] s of failures", poller.lines[-1])


def test_quiet_poller_does_not_log_passing_failures(simulator: Simulator, start_poller: StartPoller) -> None:
    simulator.fault(method="getUpdates", status=500)
    simulator.push(message())
    poller = start_poller("--quiet")
    until(lambda: simulator.stats()["confirmed"] == 1)
    poller.stop()
    assert poller.lines == []


# -- the programs of the documentation


def program(name: str) -> str:
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    [found] = [block for block in blocks if block.startswith(f"# {name}")]
    return str(found)


def run_program(directory: Path, name: str, **settings: str) -> subprocess.Popen[str]:
    (directory / name).write_text(program(name))
    env = {**outside(), "BOT_TOKEN": TOKEN, **settings}
    return subprocess.Popen([sys.executable, name], cwd=directory, env=env, stdout=subprocess.PIPE, text=True)


def test_documented_programs_archive_and_replay(simulator: Simulator, redis_url: str, tmp_path: Path) -> None:
    # Given the archiving program, without Redis
    pushed = simulator.push(*(message() for _ in range(150)))
    nowhere = "redis://127.0.0.1:1/0"
    with run_program(tmp_path, "archive.py", BOT_API_URL=simulator.url, REDIS_URL=nowhere) as archiving:
        until(lambda: simulator.stats()["confirmed"] == 150)
        # When it is killed after all its updates are confirmed
        archiving.kill()
    # Then the file has all updates
    lines = (tmp_path / "updates.jsonl").read_text().splitlines()
    assert [json.loads(line)["update_id"] for line in lines] == pushed
    # And the replaying program appends them to their lanes
    with run_program(tmp_path, "replay.py", REDIS_URL=redis_url) as replaying:
        said, _ = replaying.communicate(timeout=WITHIN_S)
    assert (replaying.returncode, lane(redis_url)) == (0, pushed)
    assert said == f"durable up to update {pushed[99]}\ndurable up to update {pushed[149]}\n"
    # And the command reports that they were seen before
    command = re.search(r"^(?:python -m|chatlanes) (poller replay \S+)", DOCS.read_text(), re.MULTILINE)
    assert command
    answer = subprocess.run(
        [sys.executable, "-m", "chatlanes", *command[1].split()],
        cwd=tmp_path,
        env={**os.environ, "BOT_TOKEN": TOKEN, "REDIS_URL": redis_url},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
    assert "0 appended, 150 seen before" in answer.stdout


@pytest.mark.parametrize("name", ["kafka_in.py", "shop/filters.py"])
def test_other_documented_programs_compile(name: str) -> None:
    compile(program(name), name, "exec")
