"""lanes status: updates by state, the updates that block chats, as a table and as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from celery_lanes.cli import formatting, status
from celery_lanes.leases.pending_acks import RUN, Times
from celery_lanes.protocol import NewMessage, keys, script
from chatlanes.cli.context import BotContext
from chatlanes.settings.running_sandbox import DATA, announced
from chatlanes.telegram.flood.keys import keys_of, refused_keys
from tests.cli.conftest import Cli
from tests.support import ROOT, forks
from tests.support.outside import IMPORTED, outside


@pytest.fixture(autouse=True)
def _no_sampling_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "RATE_OVER_S", 0.0)


def some_of_everything(cli: Cli) -> None:
    cli.bury("1:9", "1/chat:9")
    for number in range(4):
        cli.append(f"1:1{number}", "1/chat:7")
    cli.append("1:20", "1/chat:8")
    [_, (delayed, fence)] = cli.take(2)
    cli.store.retry(delayed, fence, delay_ms=600_000, problem={"type": "E"})
    cli.append("1:21", "1/chat:8")
    cli.append("2:1", "2/chat:7", queue="help.0")
    # It arrived by webhook before the update with the previous id
    cli.store.append([NewMessage("1:40", "shop.1", b"{}", ["1/chat:9"], once=("1", 40))], hold_ms=600_000)


def test_states_are_shown_per_group_and_queue(cli: Cli) -> None:
    some_of_everything(cli)
    shown = json.loads(cli.text("status", "--json"))
    shop, help_ = shown["bots"]["shop"], shown["bots"]["help"]
    assert {name: shop[name] for name in ("backlog", *status.STATES)} == {
        "backlog": 7,
        "held": 1,
        "waiting": 4,
        "collecting": 0,
        "gated": 0,
        "ready": 0,
        "leased": 1,
        "delayed": 1,
        "buried": 1,
    }
    assert shop["queues"].keys() == {"shop.0", "shop.1"}
    assert (shop["queues"]["shop.0"]["held"], shop["queues"]["shop.1"]["held"]) == (0, 1)
    assert (help_["backlog"], help_["ready"], help_["buried"]) == (1, 1, 0)
    assert 0 <= shop["oldest_s"] < 600


def test_longest_lanes_are_shown_with_their_holders(cli: Cli) -> None:
    some_of_everything(cli)
    first, second = json.loads(cli.text("status", "--json"))["lanes"]
    assert (first["lane"], first["waiting"], first["first"]["state"]) == ("1/chat:7", 3, "leased")
    assert (first["first"]["worker"], first["first"]["attempt"]) == ("east:4711", 1)
    assert first["first"]["title"] == "message, chat 7, update 1:10"
    assert (second["lane"], second["waiting"], second["first"]["state"]) == ("1/chat:8", 1, "delayed")
    assert second["first"]["attempt"] == 2
    text = cli.text("status")
    assert "1/chat:7        3  message, chat 7, update 1:10: runs on east:4711 for" in text
    assert "message, chat 8, update 1:20: delayed" in text


def test_timers_are_counted(cli: Cli) -> None:
    assert json.loads(cli.text("status", "--json"))["timers"] == {"waiting": 0, "late_s": 0}
    assert "timers" not in cli.text("status")
    for name, in_ms in (("x", 600_000), ("y", 900_000)):
        cli.store.schedule(NewMessage("1:timer:", "shop.0", b"{}", []), "1/chat:7", name, in_ms=in_ms)
    assert "timers: 2 wait, the next one is due in " in cli.text("status")
    cli.store.client.zincrby(keys.TIMERS, -660_000, "1/chat:7\nx")
    assert "timers: 2 wait, the next one is late by 6" in cli.text("status")
    assert json.loads(cli.text("status", "--json"))["timers"]["late_s"] >= 60


def test_pipe_gets_plain_text_without_empty_queues(cli: Cli) -> None:
    cli.append("1:1")
    text = cli.text("status")
    assert "\x1b" not in text
    assert "shop.0" in text
    assert "shop.1" not in text


def test_no_updates_give_a_table_of_zeros(cli: Cli) -> None:
    head, *bots = cli.said("status")
    assert head.split() == ["bot", "queue", "backlog", *status.STATES, "oldest", "rate/s", "wait", "run"]
    assert [line.split() for line in bots] == [[name, *"000000000", "–", "0.0", "–", "–"] for name in ("shop", "help")]


def test_undeclared_queues_are_shown(cli: Cli) -> None:
    cli.append("3:1", queue="gone.4")
    assert json.loads(cli.text("status", "--json"))["bots"]["gone"]["queues"]["gone.4"]["ready"] == 1


def test_truncated_count_shows_the_total(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "MOST_EXAMINED", 6)
    for number in range(8):
        cli.append(f"1:{number}")
    cli.append("2:1", queue="help.0")
    assert "shop: the newest 5 updates are counted in the backlog only, not by state" in cli.said("status")
    shown = json.loads(cli.text("status", "--json"))["bots"]
    assert (shown["shop"]["backlog"], shown["shop"]["ready"], shown["shop"]["not_looked_at"]) == (8, 3, 5)
    assert (shown["help"]["backlog"], shown["help"]["not_looked_at"]) == (1, 0)


def test_rate_counts_settles_between_two_samples(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        cli.append(f"1:{number}")

    def settle(_: float) -> None:
        cli.store.turn([], holder="east:4711:abcdef", lease_ms=1, room=0, settles=cli.take(8))

    monkeypatch.setattr(status.time, "sleep", settle)
    shown = json.loads(cli.text("status", "--json"))["bots"]["shop"]
    assert shown["rate"] > 0
    assert shown["rate"] == shown["queues"]["shop.0"]["rate"]


def test_medians_are_of_the_time_between_two_samples(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def turn(*runs_s: float) -> None:
        times = Times()
        for seconds in runs_s:
            times.note(RUN, "shop.0", seconds)
        cli.store.turn([], holder="east:4711:abcdef", lease_ms=1, room=0, times=times)

    turn(500, 500, 500)
    monkeypatch.setattr(status.time, "sleep", lambda _: turn(0.004, 0.004, 0.004, 30))
    shown = json.loads(cli.text("status", "--json"))["bots"]
    assert (shown["shop"]["wait_median_s"], round(shown["shop"]["run_median_s"], 4)) == (None, 0.0042)
    assert shown["help"]["run_median_s"] is None
    assert cli.said("status")[1].split()[-3:] == ["–", "4", "ms"]


def test_the_page_names_every_state_and_field(cli: Cli) -> None:
    page = (ROOT / "docs/command.md").read_text()
    fields = page.partition("With `--json` the output is one object")[2]
    assert [state for state in status.STATES if f"| {state} |" not in page or f"`{state}`" not in fields] == []
    shown = json.loads(cli.text("status", "--json"))
    assert [name for name in shown if f"| `{name}" not in fields] == []
    assert [name for name in shown["bots"]["shop"] if f"`{name}`" not in fields and name != "queues"] == []


def test_unreachable_redis_is_one_sentence(cli: Cli) -> None:
    cli.app.conf.broker_url = "redis://:hidden@127.0.0.1:1/0"
    [line] = cli.said("status")
    assert line.startswith("Redis at 127.0.0.1:1 does not answer: ")
    assert cli.code == 1


@pytest.mark.slow
@pytest.mark.parametrize("words", [("lanes", "status"), ("lanes", "dead", "list"), ("settings",)])
def test_a_full_disk_is_one_sentence(redis_url: str, tmp_path: Path, words: tuple[str, ...]) -> None:
    environment = {**outside(), "PYTHONPATH": str(ROOT), "REDIS_URL": redis_url}
    environment.pop("PYTHONUNBUFFERED", None)
    command = [sys.executable, "-m", "chatlanes", *words]
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            command, cwd=tmp_path, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ran.stderr.removeprefix("Error: ") == "the output cannot be written: No space left on device\n"
    assert ran.returncode == 1


def celery(folder: Path, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """`celery -A chatlanes …` in this folder, with these settings only."""
    environment = {**outside(), "PYTHONPATH": str(ROOT), **settings}
    command = [sys.executable, "-m", "celery", "-A", "chatlanes", *words]
    return forks.run(command, folder, environment, IMPORTED)


@pytest.mark.parametrize(
    ("sandbox", "advice"),
    [
        ({}, "Start Redis there, set REDIS_URL, or change to the folder in which your sandbox runs"),
        (
            {"REDIS_URL": "redis://127.0.0.1:2/0"},
            "A sandbox runs in this folder, at redis://127.0.0.1:2/0: unset REDIS_URL and BOT_TOKEN to use it",
        ),
    ],
)
def test_unreachable_redis_of_chatlanes_names_the_setting(tmp_path: Path, sandbox: dict[str, str], advice: str) -> None:
    (tmp_path / DATA).mkdir()
    with announced(tmp_path / DATA, sandbox):
        ended = celery(tmp_path, "lanes", "status", REDIS_URL="redis://127.0.0.1:1/0")
    assert ended.returncode == 1
    assert ended.stderr.endswith(f" 127.0.0.1:1. Connection refused. {advice}\n")


@pytest.mark.slow
def test_lanes_use_the_sandbox_that_runs_in_this_folder(tmp_path: Path, redis_url: str) -> None:
    (tmp_path / DATA).mkdir()
    with announced(tmp_path / DATA, {"REDIS_URL": redis_url, "BOT_TOKEN": "1:SIMULATED"}):
        paused = celery(tmp_path, "lanes", "pause", "chat", "7")
    assert (paused.stdout, paused.stderr) == ("paused 1/chat:7\n", "")


@pytest.mark.slow
def test_status_as_a_command_of_celery(tmp_path: Path, redis_url: str) -> None:
    ran = celery(tmp_path, "lanes", "status", REDIS_URL=redis_url, BOT_TOKEN="1:A")
    assert (ran.stderr, ran.returncode) == ("", 0)
    assert ran.stdout.splitlines()[1].split()[0] == "updates"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (0.04, "0.0 s"), (9.94, "9.9 s"), (119.4, "119 s"), (121.0, "2 min"), (7300.0, "2 h"), (2e5, "2 d")],
)
def test_ages(seconds: float | None, text: str) -> None:
    assert formatting.age(seconds) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0, "    "), (1, "████"), (0.5, "██  "), (0.28, "█▏  "), (7, "████"), (-1, "    ")]
)
def test_bars(share: float, text: str) -> None:
    assert formatting.bar(share, 4) == text


def test_flood_pauses_are_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BotContext, "bot_ids", {1: "shop", 2: "help"})
    refused, keys = script("refused", "chatlanes.telegram.flood"), keys_of("1", "7")
    cli.store.run(refused.command(refused_keys(keys), scope="7", wait_ms=3_600_000))
    assert "flood wait: chat 7 waits for 60 min more (shop)" in cli.said("status")
    [wait] = json.loads(cli.text("status", "--json"))["flood_waits"]
    assert (wait["bot"], wait["what"], round(wait["left_s"] / 60)) == ("shop", "chat 7", 60)
