"""Every command on the pages exists and has the options that it is shown with.

`lanes` commands run, on test messages. Commands that run until they are stopped are only parsed here, by their own
parsers; tests/pipeline, tests/poller/webhook and tests/sandbox run them. Commands of the reader's machine (systemctl,
kubectl, …) are only known by name.
"""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
from celery import Celery
from celery.bin.base import CLIContext
from celery.bin.celery import celery
from kombu import Queue

import celery_lanes as lanes
from celery_lanes.protocol import NewMessage
from chatlanes.__main__ import main as chatlanes
from chatlanes.cli.celery_commands import flower_command
from chatlanes.cli.commands import BotCommands
from chatlanes.updates.intake import pack_update
from chatlanes.updates.words import WORDS
from chatlanes_sandbox.__main__ import main as chatlanes_sandbox
from tests.cli.conftest import COMMANDS, Cli
from tests.docs.pages import ROOT, commands
from tests.support.compose import whole_file

#: Of the reader's own machine.
THEIRS = {
    ".",
    "cd",
    "curl",
    "echo",
    "export",
    "for",
    "git",
    "kill",
    "kubectl",
    "mkdir",
    "npm",
    "openssl",
    "pip",
    "printf",
    "python3",
    "redis-cli",
    "scp",
    "sudo",
    "systemctl",
}

#: A placeholder for a value of the reader -> its value in this test.
HERE = {
    "123456:742": "1:742",
    "1:851294472": "1:742",
    "show ID": "show 1:742",
    "cancel ID": "cancel 1:timer:4102444800000:1",
    "shop": "updates",
    "broadcasts": "updates",
    "pause chat 7": "pause chat 1/chat:7",
    " …": "",
    "drop": "drop --yes",
}

ENDLESS = {"metrics", "check"}  #: one serves until it is stopped, one asks workers: tests/cli has them


class ReadError(Exception):
    """The arguments were read, and nothing was done."""


def test_there_is_something_to_try() -> None:
    assert {"make run", "make test", "chatlanes poller", "chatlanes worker"} <= set(commands())


@pytest.mark.parametrize("command", commands())
def test_the_command_is_there(command: str, request: pytest.FixtureRequest) -> None:
    words = shlex.split(command.partition(" | ")[0].partition(" > ")[0].rstrip("&"))
    while words and re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    if not words or words[0] in THEIRS:
        return
    words[0] = words[0].removeprefix(".venv/bin/")
    way = next((way for pattern, way in WAYS.items() if re.match(pattern, " ".join(words))), None)
    assert way, f"nobody tries {command!r}: give it a way in {__file__}"
    way(words, request)


def made(words: list[str], request: pytest.FixtureRequest) -> None:
    """Every target is there, and the program behind it reads ARGS."""
    given = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    ran = subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    program = re.search(r"python -m ((?:bench|chaos)[.\w]*)", ran.stdout)
    if program and "ARGS" in given:
        module([".", "-m", program[1], *shlex.split(given["ARGS"])], request)


def module(words: list[str], request: pytest.FixtureRequest) -> None:
    """`python -m …`, as its own click or argparse reads it."""
    name, *arguments = words[2:]
    if name in ("poller", "settings"):  # of a clone
        ours(["chatlanes", *words[2:]], request)
        return
    without_arguments = {"bench.scaling": "bench.scaling.__main__", "bench.passes": "bench.passes"}
    if name in without_arguments:
        assert find_spec(without_arguments[name])
        return
    main = importlib.import_module(f"{name}.__main__").main
    if isinstance(main, click.Command):
        main.make_context(name, arguments)
        return
    patch, parse = request.getfixturevalue("monkeypatch"), argparse.ArgumentParser.parse_args

    def read(parser: argparse.ArgumentParser, *given: Any, **more: Any) -> None:
        raise ReadError(parse(parser, *given, **more))

    patch.setattr(argparse.ArgumentParser, "parse_args", read)
    patch.setattr(sys, "argv", [name, *(argument for argument in arguments if argument != "…")])
    with pytest.raises(ReadError):
        main()


def ours(words: list[str], request: pytest.FixtureRequest) -> None:
    """`chatlanes …`, as its own click reads it."""
    name = words[1]
    if name == "lanes":
        of_lanes(words, request)
    elif name in ("worker", "flower"):
        celerys(["celery", "-A", "chatlanes", *words[1:]], request)
    elif name in ("settings", "--version"):
        chatlanes(words[1:], standalone_mode=False)
    else:
        patch = request.getfixturevalue("monkeypatch")
        for does in ("chatlanes.poller.program._run", "chatlanes_sandbox.run.run_command"):
            patch.setattr(does, raise_read)
        with pytest.raises(ReadError):
            chatlanes([word for word in words[1:] if word != "…"], standalone_mode=False)


def of_the_simulator(words: list[str], request: pytest.FixtureRequest) -> None:
    """`chatlanes-sandbox simulator …`, as its own click reads it."""
    name, *arguments = words[1:]
    chatlanes_sandbox.commands[name].make_context(name, arguments)


def raise_read(*_: object) -> None:
    raise ReadError


def celerys(words: list[str], request: pytest.FixtureRequest) -> None:
    """`celery -A chatlanes …`, as its own click reads it."""
    name, *arguments = words[3:]
    if name == "inspect":
        return
    known = celery.get_command(None, name)
    assert known, name
    if name == "flower":
        known = flower_command(known)  # Flower itself accepts anything
    text = shlex.join(arguments).replace(" N", " 4")
    known.make_context(name, shlex.split(text), obj=CLIContext(Celery("docs", set_as_current=False), True, None))


def of_lanes(words: list[str], request: pytest.FixtureRequest) -> None:
    """`chatlanes lanes …` does what it should, with two buried messages and a timer of chat 7."""
    arguments = words[2:]
    if arguments[:1] in (["send"], ["sent"]):  # tests/cli runs them
        BotCommands.group().commands[arguments[0]].make_context(arguments[0], arguments[1:], obj=None).close()
        return
    if arguments[:1] in (["bots"], ["broadcast"]) and len(arguments) > 1:  # tests/pipeline runs them
        folder = request.getfixturevalue("tmp_path")
        for name in ("chats.txt", "news.txt", "news.html"):
            (folder / name).touch()
        request.getfixturevalue("monkeypatch").chdir(folder)
        known = BotCommands.group().commands[arguments[0]].commands[arguments[1]]
        known.make_context(arguments[1], arguments[2:], obj=None).close()
        return
    if len(arguments) < 1 + (arguments[:1] == ["dead"]) or arguments[0] in ENDLESS or "--watch" in arguments:
        return
    cli = request.getfixturevalue("with_buried")
    said = cli.text(*_here(" ".join(arguments)).split())
    assert cli.code == 0, said


def _here(text: str) -> str:
    for theirs, ours in HERE.items():
        text = text.replace(theirs, ours)
    return text


@pytest.fixture
def with_buried(redis_url: str) -> Iterator[Cli]:
    with Celery("docs", broker=redis_url, set_as_current=False) as app:
        lanes.install(app, words=WORDS, commands=COMMANDS)
        names = ("updates.0", "updates.1")
        app.conf.task_queues = [Queue(name, queue_arguments=lanes.QUEUE_ARGUMENTS) for name in names]
        cli = Cli(app)
        for number in (742, 743):
            cli.bury(f"1:{number}", "chat:7", queue="updates.0")
        cli.append("1:744", "chat:7", queue="updates.0")
        timer = NewMessage("1:timer:4102444800000:1", "updates.0", pack_update("(timer)", b"{}"), ["1/chat:7"])
        cli.store.schedule(timer, "1/chat:7", "follow-up", at_ms=4_102_444_800_000)
        yield cli
        cli.client.close()


def composed(words: list[str], request: pytest.FixtureRequest) -> None:
    """Its services and profiles are in docker-compose.yml."""
    services = whole_file()["services"]
    profiles = {profile for service in services.values() for profile in service.get("profiles", [])}
    for before, word in pairwise(words):
        if before == "--profile":
            assert word in profiles
        if before == "--scale":
            assert word.partition("=")[0] in services
        if before in {"exec", "run", "logs", "restart", "stop", "kill"}:
            assert word in services or word.startswith("-"), word


def of_a_project(words: list[str], request: pytest.FixtureRequest) -> None:
    """tests/docs/test_django.py and test_fastapi.py run the commands of the reader's project."""


#: How a command line is tried.
WAYS: dict[str, Callable[[list[str], pytest.FixtureRequest], None]] = {
    r"make( |$)": made,
    r"python -m ": module,
    r"chatlanes ": ours,
    r"chatlanes-sandbox ": of_the_simulator,
    r"celery -A chatlanes ": celerys,
    r"docker compose ": composed,
    r"celery -A shop|python manage\.py |uvicorn shop\.": of_a_project,
}


#: Prints two keys, whatever the pattern, and notes the keys that it is to delete, one a line.
REDIS_CLI = r"""#!/bin/sh
case $1 in
--scan) printf "%s\n" "lanes:lane:1/it's a key" lanes:b ;;
DEL) shift; printf "%s\n" "$@" >> deleted ;;
esac
"""


@pytest.mark.parametrize("page", ["operations.md", "faq.md"])
def test_a_deletion_by_pattern_deletes_keys_with_blanks_and_quotes(tmp_path: Path, page: str) -> None:
    (tmp_path / "redis-cli").write_text(REDIS_CLI)
    (tmp_path / "redis-cli").chmod(0o755)
    lines = re.findall(r"(?m)^redis-cli --scan .*$", (ROOT / "docs" / page).read_text())
    assert lines
    for line in lines:
        subprocess.run(["/bin/sh", "-c", line], cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True)
    assert (tmp_path / "deleted").read_text() == "lanes:lane:1/it's a key\nlanes:b\n" * len(lines)
