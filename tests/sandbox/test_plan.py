"""The plan of a sandbox from its command line."""

import os
import re
import socket
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click
import pytest

from chatlanes_sandbox.command import sandbox
from chatlanes_sandbox.plan import Plan, StartError, environment_of, parts_of, plan_from
from chatlanes_sandbox.report import line, pauses_s
from chatlanes_sandbox.run import hide_from_git, in_a_second_terminal


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def plan_of(*arguments: str) -> Plan:
    """The plan of `chatlanes sandbox` with these arguments."""
    return plan_from(**sandbox.make_context("sandbox", [*arguments]).params)


def commands(plan: Plan, *, real: bool = False) -> dict[str, str]:
    report = None if real else ("http://simulator",)
    return {part.name: " ".join(part.command[2:]) for part in parts_of(plan, report)}


def test_without_arguments_everything_has_a_default() -> None:
    plan = plan_of()
    assert (plan.bot, plan.chats, plan.rate, plan.data) == (None, 10, None, Path(".data"))
    each = "chatlanes_sandbox.worker --quiet -A chatlanes worker -n {}@%h -E -l WARNING -c {}"
    share = min(max((os.cpu_count() or 1) // 2, 2), 4)
    assert commands(plan) == {
        "poller": "chatlanes.poller",
        "worker1": each.format("worker1", share),
        "worker2": each.format("worker2", share),
        "flower": f"celery --quiet -A chatlanes flower --address=127.0.0.1 --port={plan.flower_port} --logging=error",
        "report": "chatlanes_sandbox.report http://simulator",
    }


def test_options_reach_the_parts() -> None:
    plan = plan_of("--pool", "threads", "--concurrency", "7", "--log-level", "INFO", "--no-stream")
    assert commands(plan)["worker2"] == (
        "chatlanes_sandbox.worker --quiet -A chatlanes worker -n worker2@%h -E -l INFO -P threads -c 7"
    )
    assert plan.rate == 0
    assert list(commands(plan_of("--workers", "1"))) == ["poller", "worker", "flower", "report"]


def test_a_real_bot_has_one_worker_and_no_report() -> None:
    assert list(commands(plan_of(), real=True)) == ["poller", "worker", "flower"]


def test_two_sandboxes_that_start_together_take_different_ports() -> None:
    ports = (plan_of().flower_port, plan_of().flower_port)  # free for both, but the first one has claimed its
    assert ports[0] != ports[1]


def test_a_port_asked_for_and_in_use_is_one_sentence(taken_port: int) -> None:
    with pytest.raises(
        StartError, match=f"Port {taken_port} on 127.0.0.1 is in use; choose another with --port-flower"
    ):
        plan_of("--port-flower", str(taken_port))


@pytest.mark.parametrize(
    "arguments",
    [
        *("--chats 0", "--workers 0", "--concurrency 0", "--concurrency 99999999999999999999"),
        *("--rate -1", "--rate nan", "--rate inf"),
        *("--log-level loud", "--port-redis 99999", "--data ."),
    ],
)
def test_an_impossible_option_is_refused(arguments: str, tmp_path: Path) -> None:
    """A number of slots or a level that Celery refuses would end the workers later, when everything else runs."""
    (tmp_path / "file").touch()
    with pytest.raises(click.BadParameter):
        plan_of(*arguments.replace(" .", f" {tmp_path / 'file'}").split())


def test_the_parts_get_addresses_and_settings() -> None:
    told = environment_of(
        {"BOT": "a:b", "REDIS_URL": "redis://there"}, bot="c:d", supplied={"REDIS_URL": "redis://here"}
    )
    assert (told["BOT"], told["REDIS_URL"]) == ("c:d", "redis://here")
    assert environment_of({"BOT": "a:b"})["BOT"] == "a:b"


def test_the_line_for_a_second_terminal_works_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    supplied = {"REDIS_URL": "redis://127.0.0.1:6380/0", "BOT_TOKEN": "1:X"}
    # With an environment that is not activated
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(Path(sys.executable).parents[2])
    folder = Path(sys.executable).parent.relative_to(Path.cwd())
    line = f"In a second terminal, in this folder:  {folder}/chatlanes lanes status"
    assert in_a_second_terminal(Path(".data"), supplied) == line
    # With one that is, and data elsewhere, where the command does not look
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert in_a_second_terminal(tmp_path, supplied) == (
        "In a second terminal:  REDIS_URL=redis://127.0.0.1:6380/0 BOT_TOKEN=1:X chatlanes lanes status"
    )


def test_the_folder_for_data_ignores_itself_in_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # A folder of an older version too
    Path(".data").mkdir()
    for folder in (Path(".data"), Path("new")):
        hide_from_git(folder)
        assert (folder / ".gitignore").read_text() == "*\n"
    # But not one that exists for other things
    Path("mine").mkdir()
    hide_from_git(Path("mine"))
    assert not list(Path("mine").iterdir())


@pytest.mark.parametrize("folder", ["/proc", "/proc/x"])
def test_a_folder_for_data_that_takes_no_files_is_one_sentence(folder: str) -> None:
    with pytest.raises(StartError, match=f"--data {folder} cannot be used: "):
        hide_from_git(Path(folder))


ANSWERS = {"total": 1200, "in_order": True, "out_of_order": 0, "duplicates": 0}


@pytest.mark.parametrize(
    ("answers", "stored", "left_over", "expected"),
    [
        (
            {},
            (34, 0),
            0,
            "1,239 updates: 1,200 handled, 39 waiting · 1,200 answered, in order, none twice · 9 messages sent",
        ),
        (
            {},
            (34, 2),
            10,
            "1,249 updates: 1,208 handled, 39 waiting, 2 buried · 1,200 answered, in order, none twice "
            "· 9 messages sent",
        ),
        # An update that is appended and not confirmed yet waits once
        ({"total": 0}, (1_238, 0), 0, "1,239 updates: 0 handled, 1,239 waiting · 9 messages sent"),
        (
            {"in_order": False, "out_of_order": 2, "duplicates": 4},
            (0, 0),
            0,
            "1,239 updates: 1,234 handled, 5 waiting · 1,200 answered, 2 OUT OF ORDER, 4 TWICE · 9 messages sent",
        ),
    ],
)
def test_the_figures_of_the_report_add_up(
    answers: dict[str, object], stored: tuple[int, int], left_over: int, expected: str
) -> None:
    calls = {"getUpdates": 7, "sendChatAction": 9, "sendMessage": 8, "sendPhoto": 1}
    stats = {"added": 1239, "pending": 5, "calls": calls, "answers": {**ANSWERS, **answers}}
    shown = line(stats, *stored, left_over)
    assert shown == expected
    total, *places = (int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", shown.partition(" · ")[0]))
    assert total == sum(places)


def test_a_log_has_the_report_less_and_less_often() -> None:
    assert list(islice(pauses_s(is_live=False), 6)) == [3, 6, 12, 24, 48, 60]
    assert list(islice(pauses_s(is_live=True), 2)) == [1, 1]
