"""The content of the wheels, and their commands in folders outside a clone."""

from __future__ import annotations

import os
import re
import signal
import zipfile
from pathlib import Path

import pytest

from celery_lanes.embedded_server import free_port
from chatlanes_sandbox.simulator import Simulator
from tests.packaging.conftest import Start
from tests.packaging.wheel import SOURCES, Installed, answer_of, requirements, write_bot
from tests.support.pipeline import message
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

COMMANDS = ("flower", "lanes", "poller", "sandbox", "settings", "webhook", "worker")
TOKEN = "1:TEST"


#: Beside its package. pytest loads a plugin by its module, and importing celery_lanes takes most of a second.
PLUGINS = {"celery_lanes": {"pytest_celery_lanes.py"}}


def test_each_wheel_has_one_package_at_the_top_level(wheels: dict[str, Path], installed: Installed) -> None:
    assert list(wheels) == sorted(SOURCES)
    [version] = {wheel.name.split("-")[1] for wheel in wheels.values()}
    for name, wheel in wheels.items():
        with zipfile.ZipFile(wheel) as archive:
            listed = archive.namelist()
        assert {path.partition("/")[0] for path in listed} == {
            name,
            f"{name}-{version}.dist-info",
            *PLUGINS.get(name, ()),
        }
        assert f"{name}/py.typed" in listed
    expected = {path for name in wheels for path in (name, f"{name}-{version}.dist-info", *PLUGINS.get(name, ()))}
    assert installed.installed == expected | {"__pycache__"}  # of the plugin


def test_the_three_distributions_are_released_together(wheels: dict[str, Path]) -> None:
    versions = {name: wheel.name.split("-")[1] for name, wheel in wheels.items()}
    assert f"celery-lanes[fast]=={versions['celery_lanes']}" in requirements(wheels["chatlanes"])
    assert f"chatlanes=={versions['chatlanes']}" in requirements(wheels["chatlanes_sandbox"])


#: In a help text: what an option does, behind its name or below it.
OPTION = re.compile(r"^  -.*?(?:  +|\n {9,}|$)(.*)", re.MULTILINE)


@pytest.mark.first_only
@pytest.mark.parametrize("program", [("chatlanes",), ("python", "-m", "chatlanes")])
def test_help(installed: Installed, tmp_path: Path, program: tuple[str, ...]) -> None:
    listed = installed.run(*program, "--help", at=tmp_path)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert re.findall(r"^  ([a-z]+)  ", listed.stdout, re.MULTILINE) == list(COMMANDS)
    assert "..." not in listed.stdout.partition("Commands:")[2]
    for name in COMMANDS if program == ("chatlanes",) else ("poller",):
        shown = installed.run(*program, name, "--help", at=tmp_path)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert shown.stdout.startswith(f"Usage: chatlanes {name} ")
        assert "..." not in shown.stdout.partition("Commands:")[2]
        assert ".env" in shown.stdout, name
        assert all(means for _, means in re.findall(r"^  (-.+?)(?:  +|\n {9,}|$)(.*)", shown.stdout, re.MULTILINE)), (
            name
        )
    assert list(tmp_path.iterdir()) == []


#: Words after `chatlanes`, the exit code, and the beginning of the last line of stderr.
FAILURES = {
    "nothing": (2, "Error: No such command 'nothing'."),
    "wroker": (2, "Error: No such command 'wroker'. Did you mean 'worker'?"),
    "worker --nothing": (2, "Error: No such option '--nothing'."),
    "worker -P eventlet": (2, "Error: Invalid value for '-P' / '--pool': 'eventlet' is not one of 'prefork', "),
    "flower --prot=5555": (2, "Error: No such option '--prot'. Did you mean '--port'?"),
    "lanes statsu": (2, "Error: No such command 'statsu'. Did you mean 'status'?"),
    "poller --nothing": (2, "Error: No such option '--nothing'."),
    "poller replya": (2, "Error: No such command 'replya'. Did you mean 'replay'?"),
    "webhook nothing": (2, "Error: No such command 'nothing'."),
    "sandbox --nothing": (2, "Error: No such option '--nothing'."),
    "settings nothing": (2, "Error: Invalid value for '[table|page|env]': 'nothing' is not one of "),
    "worker": (2, "BOT_TOKEN is not set: "),
    "poller": (2, "BOT_TOKEN is not set: "),
    "webhook": (2, "BOT_TOKEN is not set: "),
    "lanes status": (1, "Redis at 127.0.0.1:1 does not answer: "),
    "sandbox --rate -1": (2, "Error: Invalid value for '--rate': -1.0 is not in the range x>=0."),
    "sandbox --port-redis 99999": (2, "Error: Invalid value for '--port-redis': 99999 is not in the range "),
}


def test_failures_are_one_sentence_and_an_exit_code(installed: Installed, tmp_path: Path) -> None:
    for words, (code, sentence) in FAILURES.items():
        failed = installed.run("chatlanes", *words.split(), at=tmp_path, REDIS_URL="redis://127.0.0.1:1")
        assert failed.returncode == code, words
        assert failed.stderr.splitlines()[-1].startswith(sentence), words
        assert "Traceback" not in failed.stderr, words
    refused = installed.run("chatlanes", "poller", at=tmp_path, LEASE_SECONDS="soon")
    assert (refused.returncode, refused.stderr.startswith("LEASE_SECONDS")) == (2, True)


def test_sandbox_names_its_extra(wheels: dict[str, Path], tmp_path: Path) -> None:
    bare = Installed([wheels["celery_lanes"], wheels["chatlanes"]], tmp_path / "bare")
    failed = bare.run("chatlanes", "sandbox", at=tmp_path)
    assert failed.returncode == 1
    assert failed.stderr == "chatlanes sandbox needs chatlanes_sandbox: pip install 'chatlanes[sandbox]'\n"


def test_the_command_of_the_sandbox(installed: Installed, tmp_path: Path) -> None:
    listed = installed.run("chatlanes-sandbox", "--help", at=tmp_path)
    assert re.findall(r"^  ([a-z]+)  .*[^.]\.$", listed.stdout, re.MULTILINE) == ["run", "simulator"]
    failed = installed.run("chatlanes-sandbox", "simulator", "--port", "99999", at=tmp_path)
    assert (failed.returncode, failed.stderr.splitlines()[-1]) == (
        2,
        "Error: Invalid value for '--port': 99999 is not in the range 0<=x<=65535.",
    )


def answered(simulator: Simulator, text: str, number: int) -> bool:
    return f"{text} #{number}" in [call["params"]["text"] for call in simulator.calls("sendMessage")]


#: The two ways to start Celery's commands, each with a pool, and `tasks` as a module or a package.
CELERY = [(("chatlanes",), "gevent", False), (("celery", "-A", "chatlanes"), "prefork", True)]


@pytest.mark.parametrize(("celery", "pool", "tasks_as_package"), CELERY, ids=["chatlanes", "celery"])
def test_bot_folder_with_modules_of_the_same_names(
    installed: Installed,
    started: Start,
    simulator: Simulator,
    redis_url: str,
    tmp_path: Path,
    celery: tuple[str, ...],
    pool: str,
    tasks_as_package: bool,
) -> None:
    # Given a bot that imports its own settings, tasks, poller, …
    folder = write_bot(tmp_path / "folder", tasks_as_package=tasks_as_package)
    answer = answer_of(tasks_as_package=tasks_as_package)
    settings = {"BOT": "mybot:handle", "BOT_TOKEN": TOKEN, "BOT_API_URL": simulator.url, "REDIS_URL": redis_url}
    # When the commands run there, then the bot imports its own modules, and updates are answered
    worker = started(*celery, "worker", "-P", pool, "-c", "2", "--without-mingle", at=folder, **settings)
    poller = started("chatlanes", "poller", at=folder, **settings)
    simulator.push(message(1, 7))
    until(lambda: answered(simulator, answer, 1) or not worker.is_running())
    assert worker.is_running()
    assert "MonkeyPatchWarning" not in worker.log
    for words in ("lanes status", "lanes check"):
        shown = installed.run(*celery, *words.split(), at=folder, **settings)
        assert (shown.returncode, shown.stderr) == (0, "")
    flower = started(*celery, "flower", f"--port={free_port()}", at=folder, **settings)
    flower.tells("Connected to")
    # And each process shuts down cleanly
    for process in (flower, poller, worker):
        process.stop()
    webhook = {"WEBHOOK_URL": "https://bot.example.org/hook", "WEBHOOK_PORT": free_port()}
    receiver = started("chatlanes", "webhook", at=folder, **settings, **webhook)
    receiver.tells("receiving on")
    receiver.stop()
    assert installed.run("chatlanes", "settings", at=folder).returncode == 0


def test_sandbox_in_a_folder_with_modules_of_the_same_names(started: Start, tmp_path: Path) -> None:
    folder = write_bot(tmp_path / "folder", tasks_as_package=True)
    port = free_port()
    sandbox = started("chatlanes", "sandbox", "--bot", "mybot:handle", f"--port-simulator={port}", at=folder)
    sandbox.tells("worker1 started")
    simulator = Simulator(f"http://127.0.0.1:{port}", token="")
    simulator.push(message(1, 7))
    until(lambda: answered(simulator, answer_of(tasks_as_package=True), 1) or not sandbox.is_running())
    sandbox.stop()


def test_detached_worker(installed: Installed, simulator: Simulator, redis_url: str, tmp_path: Path) -> None:
    folder = write_bot(tmp_path / "folder", tasks_as_package=False)
    settings = {"BOT": "mybot:handle", "BOT_TOKEN": TOKEN, "BOT_API_URL": simulator.url, "REDIS_URL": redis_url}
    options = ("-P", "solo", "-l", "INFO", "--without-mingle", "--detach", "--pidfile=pid", "--logfile=log")
    assert installed.run("chatlanes", "worker", *options, at=folder, **settings).returncode == 0
    log, pid_file = folder / "log", folder / "pid"
    until(lambda: log.exists() and " ready." in log.read_text())
    os.kill(int(pid_file.read_text()), signal.SIGTERM)
    until(lambda: not pid_file.exists())


@pytest.mark.first_only
@pytest.mark.parametrize("program", [("chatlanes",), ("python", "-m", "chatlanes")])
def test_sighup_restarts_a_worker(
    started: Start, simulator: Simulator, redis_url: str, tmp_path: Path, program: tuple[str, ...]
) -> None:
    folder = write_bot(tmp_path / "folder", tasks_as_package=False)
    settings = {"BOT": "mybot:handle", "BOT_TOKEN": TOKEN, "BOT_API_URL": simulator.url, "REDIS_URL": redis_url}
    worker = started(*program, "worker", "-P", "solo", "-l", "INFO", "--without-mingle", at=folder, **settings)
    worker.tells(" ready.")
    os.kill(worker.pid, signal.SIGHUP)
    until(lambda: worker.log.count(" ready.") == 2 or not worker.is_running())
    worker.stop()
