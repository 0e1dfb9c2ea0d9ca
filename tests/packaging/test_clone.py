"""`python -m poller`, `python -m settings` and `celery -A tasks` in a clone, next to modules of the same names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.outside import outside

pytestmark = pytest.mark.slow


def run(*words: str, at: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *words]
    return subprocess.run(
        command, cwd=at, env={**outside(), **settings}, capture_output=True, text=True, timeout=120, check=False
    )


def test_commands_of_a_clone() -> None:
    for name, usage in {"poller": "Usage: chatlanes poller ", "settings": "Usage: chatlanes settings "}.items():
        shown = run(name, "--help", at=ROOT)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert shown.stdout.startswith(usage)
    for words in ("worker", "flower", "lanes status"):
        shown = run("celery", "-A", "tasks", *words.split(), "--help", at=ROOT)
        assert (shown.returncode, shown.stderr) == (0, "")
    listed = run("celery", "-A", "tasks", "report", at=ROOT, REDIS_URL="redis://127.0.0.1:1")
    assert "task_create_missing_queues: False" in listed.stdout
    code = "from tasks.routing import keys_of; print(keys_of)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The top folder of a clone; Python imports chatlanes from elsewhere."""
    for name in ("tasks", "poller", "settings"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.mark.parametrize("words", ["poller --help", "settings table", "celery -A tasks report"])
def test_command_names_a_module_that_it_hides(clone: Path, words: str) -> None:
    name = "tasks" if "tasks" in words else words.split()[0]
    (clone / f"{name}.py").write_text("MINE = True\n")
    shown = run(*words.split(), at=clone, PYTHONPATH=str(ROOT))
    assert shown.returncode == 0
    assert shown.stderr.startswith(f"{name}.py in {clone} cannot be imported: the clone's folder {name}/ hides it. ")
    assert shown.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "line", ["from settings import MINE", "import settings; settings.MINE", "import tasks.mail", "import poller.mine"]
)
def test_import_of_a_hidden_module_names_the_entry_point(tmp_path: Path, line: str) -> None:
    (tmp_path / "mybot.py").write_text(line)
    code = "from chatlanes.settings.imports import import_object; import_object('BOT', 'mybot:handle')"
    path = f"{ROOT}:{tmp_path}"
    command = [sys.executable, "-c", code]
    failed = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    sentence = failed.stderr.splitlines()[-1]
    assert f"is the entry point of the clone in {ROOT}, which hides a module of that name" in sentence
