"""The settings that a running sandbox supplies to other commands in its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from chatlanes.settings import running_sandbox
from chatlanes.settings.running_sandbox import DATA, announced

SANDBOX = {"REDIS_URL": "redis://127.0.0.1:6380/0", "BOT_TOKEN": "1:SIMULATED", "BOT_API_URL": "http://127.0.0.1:8082"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    DATA.mkdir()
    for name in (*SANDBOX, "BOTS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_a_sandbox_is_found_while_it_runs() -> None:
    assert running_sandbox.supplied() == {}
    with announced(DATA, SANDBOX):
        assert running_sandbox.supplied() == SANDBOX
    # And not after its end, although its file is still there, as after a kill -9
    assert (DATA / running_sandbox.FILE).exists()
    assert running_sandbox.supplied() == {}


@pytest.mark.parametrize("given", ["REDIS_URL=redis://elsewhere", "BOT_TOKEN=2:MINE", "QUEUES=none"])
def test_settings_of_the_user_win(folder: Path, given: str) -> None:
    (folder / ".env").write_text(given)
    with announced(DATA, SANDBOX):
        assert running_sandbox.supplied() == {}


def test_a_sandbox_on_a_redis_of_the_user_supplies_its_bot(folder: Path) -> None:
    (folder / ".env").write_text("REDIS_URL=redis://elsewhere\nBOT_API_URL=http://ignored\n")
    simulator = {name: value for name, value in SANDBOX.items() if name != "REDIS_URL"}
    with announced(DATA, simulator):
        assert running_sandbox.supplied() == simulator


def test_a_data_folder_that_cannot_be_read_has_no_sandbox(folder: Path) -> None:
    (folder / "file").touch()
    assert running_sandbox.find(folder / "file") == {}
