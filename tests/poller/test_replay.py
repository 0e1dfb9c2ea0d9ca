"""`chatlanes poller replay FILE`, as a process: appended updates, output, and exit code."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.poller.lanes import buried, lane
from tests.support.bot_api import TOKEN
from tests.support.outside import outside
from tests.support.waiting import WITHIN_S, until


def lines_of(*update_ids: int) -> str:
    updates = ({"update_id": n, "message": {"chat": {"id": 7}, "from": {"id": 7}, "text": "hi"}} for n in update_ids)
    return "".join(json.dumps(update) + "\n" for update in updates)


class Replay:
    """Runs the command in the folder of `updates.jsonl`."""

    def __init__(self, directory: Path, redis_url: str) -> None:
        self.directory = directory
        self._env = {**outside(), "BOT_TOKEN": TOKEN, "REDIS_URL": redis_url}

    def start(self, *arguments: str, **settings: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "chatlanes.poller", "replay", *arguments],
            cwd=self.directory,
            env={**self._env, **{name: str(value) for name, value in settings.items()}},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str, stdin: str = "", **settings: object) -> tuple[int, str, str]:
        """Returns exit code, stdout and stderr."""
        with self.start(*arguments, **settings) as process:
            said, logged = process.communicate(stdin, timeout=WITHIN_S)
        return process.returncode, said, logged

    def write(self, text: str) -> None:
        (self.directory / "updates.jsonl").write_text(text)


@pytest.fixture
def replay(tmp_path: Path, redis_url: str) -> Replay:
    return Replay(tmp_path, redis_url)


def test_file_is_appended_once_in_its_order(replay: Replay, redis_url: str) -> None:
    # Given 250 updates
    replay.write(lines_of(*range(1, 251)))
    # When they are replayed
    code, said, _ = replay("updates.jsonl")
    # Then each is in its lane once, in order
    assert lane(redis_url) == list(range(1, 251))
    assert (code, said) == (
        0,
        "updates.jsonl: 250 lines, 250 updates: 250 appended, 0 seen before, 0 buried, 0 filtered out, "
        "0 lines that are not updates; backlog 250\n",
    )
    # And a second replay, from stdin, appends nothing and says why
    code, said, _ = replay("-", stdin=lines_of(*range(1, 251)))
    assert lane(redis_url) == list(range(1, 251))
    assert code == 0
    assert said.startswith("stdin: 250 lines, 250 updates: 0 appended, 250 seen before, ")
    assert "updates that were appended in the last 48 h are not appended again\n" in said


def test_no_rate_holds_for_a_replay(replay: Replay, redis_url: str) -> None:
    replay.write(lines_of(*range(1, 6)))
    assert replay("updates.jsonl", USER_RATE="1/3600")[0] == 0
    assert lane(redis_url) == [1, 2, 3, 4, 5]


def test_invalid_lines_are_reported_by_number(replay: Replay, redis_url: str) -> None:
    replay.write("\ufeff" + lines_of(1) + 'hello\n\n{"message":{}}\n[1]\n{"update_id":-1}\n' + lines_of(2).rstrip())
    code, said, logged = replay("updates.jsonl", "--quiet")
    assert lane(redis_url) == [1, 2]
    assert buried(redis_url) == 0
    assert code == 1
    assert said.startswith("updates.jsonl: 7 lines, 2 updates: 2 appended")
    assert "4 lines that are not updates" in said
    reports = [line.partition("poller: ")[2] for line in logged.splitlines()]
    assert [line.partition(" is not JSON: ")[0].partition(" has no ")[0] for line in reports] == [
        "line 2",
        "line 4",
        "line 5",
        "line 6",
    ]


def test_wrong_kind_of_file_gives_a_short_report(replay: Replay) -> None:
    replay.write("hello\n" * 1000)
    code, said, logged = replay("updates.jsonl", "-q")
    assert code == 1
    assert "1000 lines that are not updates" in said
    assert len(logged.splitlines()) == 21


def test_filtered_updates_are_dropped_and_counted(replay: Replay, redis_url: str) -> None:
    replay.write(lines_of(1, 2) + '{"update_id": 3, "poll": {"id": "1"}}\n')
    code, said, _ = replay("updates.jsonl", FILTER="message")
    assert (code, lane(redis_url)) == (0, [1, 2])
    assert "3 updates: 2 appended, 0 seen before, 0 buried, 1 filtered out" in said


def test_interrupted_replay_continues(replay: Replay, redis_url: str) -> None:
    # Given a replay that waits at the backlog limit
    replay.write(lines_of(*range(1, 251)))
    with replay.start("updates.jsonl", MAX_PENDING=150) as process:
        until(lambda: len(lane(redis_url)) == 150)
        # When it is stopped
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=WITHIN_S)
    # Then it reports the last line that is completely appended
    assert process.returncode == 1
    assert "stopped before the end: lines up to 100 are in the lanes. Run it again for the rest" in said
    # And the next run appends the rest, without duplicates
    code, said, _ = replay("updates.jsonl")
    assert (code, lane(redis_url)) == (0, list(range(1, 251)))
    assert "100 appended, 150 seen before" in said


def test_stop_while_stdin_is_silent(replay: Replay) -> None:
    with replay.start("-") as process:
        assert process.stderr
        assert "Redis is durable" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 1


@pytest.mark.first_only
@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "settings", "sentence"),
    [
        (["nope.jsonl"], {}, "nope.jsonl cannot be read: No such file or directory"),
        (["."], {}, ". cannot be read: Is a directory"),
        ([], {}, "Missing argument 'FILE'."),
        (["updates.jsonl", "--bot", "shop"], {}, "--bot shop: BOTS names no bots"),
        (["updates.jsonl"], {"BOTS": "bots.toml"}, "--bot is missing: BOTS names one, two"),
        (["updates.jsonl", "--bot", "three"], {"BOTS": "bots.toml"}, "--bot three: BOTS names one, two"),
    ],
)
def test_replay_that_cannot_start_says_why(
    replay: Replay, arguments: list[str], settings: dict[str, str], sentence: str
) -> None:
    replay.write(lines_of(1))
    (replay.directory / "bots.toml").write_text('[one]\ntoken_env = "BOT_TOKEN"\n[two]\ntoken_env = "OTHER_TOKEN"\n')
    code, _, logged = replay(*arguments, OTHER_TOKEN="7890:SECRET-other", **settings)
    assert (code, logged.splitlines()[-1].rpartition("Error: ")[2]) == (2, sentence)


def test_replay_for_one_of_several_bots(replay: Replay, redis_url: str) -> None:
    replay.write(lines_of(1))
    (replay.directory / "bots.toml").write_text('[one]\ntoken_env = "BOT_TOKEN"\n[two]\ntoken_env = "OTHER_TOKEN"\n')
    code, _, _ = replay("updates.jsonl", "--bot", "two", BOTS="bots.toml", OTHER_TOKEN="7890:SECRET-other")
    assert (code, lane(redis_url)) == (0, [])
    code, _, _ = replay("updates.jsonl", "--bot", "one", BOTS="bots.toml", OTHER_TOKEN="7890:SECRET-other")
    assert (code, lane(redis_url)) == (0, [1])
