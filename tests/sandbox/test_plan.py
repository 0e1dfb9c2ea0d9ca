"""The plan of a sandbox from its command line."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatlanes.sandbox.data import hide_from_git
from chatlanes.sandbox.parts import environment_of, parts_of
from chatlanes.sandbox.plan import Plan, PlanError, plan_from
from chatlanes.sandbox.report import line


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def commands(plan: Plan, *, real: bool = False) -> dict[str, str]:
    report = None if real else ("http://simulator",)
    return {part.name: " ".join(part.command[2:]) for part in parts_of(plan, report)}


def test_without_arguments_everything_has_a_default() -> None:
    plan = plan_from([])
    assert (plan.bot, plan.chats, plan.rate, plan.data) == (None, 10, None, Path(".data"))
    each = "chatlanes.sandbox.worker --quiet -A chatlanes worker -n {}@%h -E -l WARNING -c {}"
    share = min(max((os.cpu_count() or 1) // 2, 2), 4)
    assert commands(plan) == {
        "poller": "chatlanes.poller",
        "worker1": each.format("worker1", share),
        "worker2": each.format("worker2", share),
        "flower": f"celery --quiet -A chatlanes flower --address=127.0.0.1 --port={plan.flower_port} --logging=error",
        "report": "chatlanes.sandbox.report http://simulator",
    }


def test_options_reach_the_parts() -> None:
    plan = plan_from(["--pool", "threads", "--concurrency", "7", "--log-level", "INFO", "--no-stream"])
    assert commands(plan)["worker2"] == (
        "chatlanes.sandbox.worker --quiet -A chatlanes worker -n worker2@%h -E -l INFO -P threads -c 7"
    )
    assert plan.rate == 0
    assert list(commands(plan_from(["--workers", "1"]))) == ["poller", "worker", "flower", "report"]


def test_a_real_bot_has_one_worker_and_no_report() -> None:
    assert list(commands(plan_from([]), real=True)) == ["poller", "worker", "flower"]


def test_two_sandboxes_that_start_together_take_different_ports() -> None:
    ports = (plan_from([]).flower_port, plan_from([]).flower_port)  # free for both, but the first one has claimed its
    assert ports[0] != ports[1]


def test_a_port_asked_for_and_in_use_is_one_sentence(taken_port: int) -> None:
    with pytest.raises(PlanError, match=f"Port {taken_port} on 127.0.0.1 is in use; choose another with --port-flower"):
        plan_from(["--port-flower", str(taken_port)])


@pytest.mark.parametrize("arguments", [["--chats", "0"], ["--rate", "-1"], ["--workers", "0"]])
def test_an_impossible_stream_is_one_sentence(arguments: list[str]) -> None:
    with pytest.raises(PlanError, match="--chats and --workers must be at least 1 and --rate at least 0"):
        plan_from(arguments)


def test_the_parts_get_addresses_and_settings() -> None:
    told = environment_of({"BOT": "a:b"}, bot="c:d", redis_url="redis://here", simulator=("1:X", "http://there"))
    assert told["BOT"] == "c:d"
    assert told["REDIS_URL"] == "redis://here"
    assert (told["BOT_TOKEN"], told["BOT_API_URL"]) == ("1:X", "http://there")
    assert environment_of({"BOT": "a:b"})["BOT"] == "a:b"


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


ANSWERS = {"total": 1200, "chats": 3, "in_order": True, "out_of_order": 0, "duplicates": 0}


@pytest.mark.parametrize(
    ("answers", "backlog", "left_over", "expected"),
    [
        (
            {},
            34,
            0,
            "received 1,234 · handled 1,200 · sent 9 · "
            "1,200 answers in 3 chats: each in order · duplicates 0 · waiting 39",
        ),
        (
            {},
            34,
            10,
            "received 1,234 · handled 1,210 · sent 9 · "
            "1,200 answers in 3 chats: each in order · duplicates 0 · waiting 39",
        ),
        ({"total": 0}, 34, 0, "received 1,234 · handled 1,200 · sent 9 · waiting 39"),
        (
            {"in_order": False, "out_of_order": 2, "duplicates": 4},
            1_300,
            0,
            "received 1,234 · handled 0 · sent 9 · "
            "1,200 answers in 3 chats: 2 NOT IN ORDER · duplicates 4 · waiting 1,305",
        ),
    ],
)
def test_the_report(answers: dict[str, object], backlog: int, left_over: int, expected: str) -> None:
    calls = {"getUpdates": 7, "sendChatAction": 9, "sendMessage": 8, "sendPhoto": 1}
    stats = {"confirmed": 1234, "pending": 5, "calls": calls, "answers": {**ANSWERS, **answers}}
    assert line(stats, backlog, left_over) == expected
