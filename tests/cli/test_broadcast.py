"""lanes broadcast: what it reads, and which bot it is about."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chatlanes.broadcasts import Broadcasts, Call, Reason, keys
from chatlanes.broadcasts.broadcast import missed_line
from chatlanes.cli.broadcast import params_of
from chatlanes.cli.context import BotContext
from chatlanes.settings import Settings
from chatlanes.updates.added_bots import new_key
from tests.cli.conftest import Cli
from tests.support import ROOT

SAYS_HI = ("--method", "sendMessage", "--param", "text=hi")


@pytest.fixture
def with_token(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(bot_token="1:A", _env_file=None)
    monkeypatch.setattr(BotContext, "bots", lambda _: (settings,))
    monkeypatch.setattr(BotContext, "bot_ids", {1: "updates"})


def stored(cli: Cli, bot_id: int, id_: str) -> Broadcasts:
    broadcasts = Broadcasts(cli.client, bot_id)
    broadcasts.store(id_, Call("sendMessage", {"text": "hi"}), [7, 8], 25.0)
    broadcasts.begin(broadcasts.progress(id_))
    return broadcasts


@pytest.mark.usefixtures("with_token")
@pytest.mark.parametrize(
    "content",
    [b"7\r\n-100\r\n\r\n7\r\n8", b"\xef\xbb\xbf7\n-100\n8\n", b"7\r-100\r8", b" 7 # Ann\n#\n\t-100\n07\n8"],
    ids=["CRLF", "byte order mark", "CR", "comments"],
)
def test_files_of_other_systems_are_read(cli: Cli, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "chats.txt").write_bytes(content)
    said = cli.said("broadcast", "start", "--to", str(tmp_path / "chats.txt"), *SAYS_HI)
    assert said[1] == "sendMessage for 3 chats, 25 per second: 0.1 s"
    # And it is listed, although no worker runs
    assert cli.said("broadcast", "status")[1].split() == [said[0], "stored", "3", "0", "0%"]
    assert cli.said("broadcast", "resume", said[0]) == [f"resumed {said[0]}"]


@pytest.mark.usefixtures("with_token")
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "there are no recipients"),
        (b"\n# nobody\n", "there are no recipients"),
        (b"7\n@ann\n", "line 2 is '@ann'"),
        (b"chat_id\n7\n", "line 1 is 'chat_id'"),
        (b"7\n0\n", "line 2 is '0'"),
        (b"7\n\xff\xfe\x00\n", "line 2 is '\N{REPLACEMENT CHARACTER}"),
        (b"9" * 30, "line 1 is '99999"),
    ],
)
def test_a_file_that_is_not_a_list_of_chats_starts_nothing(
    cli: Cli, tmp_path: Path, content: bytes, sentence: str
) -> None:
    (tmp_path / "chats.txt").write_bytes(content)
    said = cli.text("broadcast", "start", "--to", str(tmp_path / "chats.txt"), *SAYS_HI)
    assert cli.code == 1
    assert sentence in said
    assert list(cli.client.scan_iter("broadcast*")) == []


@pytest.mark.slow
def test_a_broadcast_whose_id_cannot_be_printed_does_not_start(cli: Cli, redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "chats.txt").write_text("7\n")
    command = [sys.executable, "-m", "chatlanes", "lanes", "broadcast", "start", "--to", "chats.txt", *SAYS_HI]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "REDIS_URL": redis_url, "BOT_TOKEN": "1:A"}
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(command, cwd=tmp_path, env=environment, stdout=full, check=False)
    assert ran.returncode != 0
    assert Broadcasts(cli.client, 1).all() == []
    assert cli.store.next_timers() == []


@pytest.mark.usefixtures("with_token")
def test_a_text_that_is_not_utf8_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "chats.txt").write_text("7\n")
    (tmp_path / "text.txt").write_bytes("\N{LATIN SMALL LETTER E WITH ACUTE}t".encode("latin-1"))
    files = ("--to", str(tmp_path / "chats.txt"), "--text-file", str(tmp_path / "text.txt"))
    said = cli.text("broadcast", "start", *files, "--method", "sendMessage")
    assert (cli.code, "text.txt: it is not UTF-8" in said) == (1, True)


@pytest.mark.usefixtures("with_token")
@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("sendMesage", "sendMesage is not a method of the Bot API 10.3; did you mean sendMessage?"),
        ("fooBar", "fooBar is not a method of the Bot API 10.3: a handler can call a newer method"),
    ],
)
def test_a_method_that_does_not_exist_starts_nothing(cli: Cli, tmp_path: Path, method: str, sentence: str) -> None:
    (tmp_path / "chats.txt").write_text("7\n")
    started = cli.said("broadcast", "start", "--to", str(tmp_path / "chats.txt"), "--method", method)
    assert (started, cli.code) == ([sentence], 1)


@pytest.mark.parametrize(
    ("text", "value"), [("a=[1]", [1]), ("a=b=c", "b=c"), ("a=" + "[" * 9_999, "[" * 9_999)], ids=["JSON", "text", "["]
)
def test_what_is_not_json_is_a_text(text: str, value: object) -> None:
    assert params_of([text]) == {"a": value}


def test_without_a_token_a_broadcast_is_found_by_its_id(cli: Cli) -> None:
    # Given broadcasts of two bots
    stored(cli, 1, "b1")
    stored(cli, 2, "b2")
    # Then those commands work that need only the id
    assert cli.said("broadcast", "pause", "b2") == ["paused b2"]
    assert cli.said("broadcast", "status", "b2")[0] == "b2  paused"
    assert cli.said("broadcast", "report", "b2") == ["every chat was reached so far"]
    # And the others say what they need
    for command in (("resume", "b2"), ("cancel", "b2")):
        assert "a broadcast needs the token of its bot" in cli.text("broadcast", *command)
    assert cli.said("broadcast", "status") == ["several bots have broadcasts: add --bot with one of 1, 2"]
    assert cli.said("broadcast", "status", "--bot", "2")[1].startswith("b2  paused")
    assert cli.said("broadcast", "status", "b9") == ["there is no broadcast b9"]


def test_an_added_bot_is_no_reason_to_ask_for_a_token(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BotContext, "bots", lambda _: (Settings(bots_key=new_key(), _env_file=None),))
    monkeypatch.setattr(BotContext, "bot_ids", {7: "7"})
    stored(cli, 7, "b7")
    assert cli.said("broadcast", "pause", "b7") == ["paused b7"]
    assert cli.said("broadcast", "status", "b7")[0] == "b7  paused"
    assert cli.said("broadcast", "report", "b7") == ["every chat was reached so far"]
    assert cli.said("broadcast", "status")[1].startswith("b7  paused")


def test_without_a_token_the_broadcasts_of_the_only_bot_are_listed(cli: Cli) -> None:
    assert cli.said("broadcast", "status") == ["there are no broadcasts"]
    stored(cli, 1, "b1")
    assert cli.said("broadcast", "status")[1].startswith("b1  running")


def test_a_broadcast_that_was_cancelled_does_not_begin(cli: Cli) -> None:
    broadcasts = Broadcasts(cli.client, 1)
    broadcasts.store("b1", Call("sendMessage", {"text": "hi"}), [7, 8], 25.0)
    read = broadcasts.progress("b1")
    broadcasts.set_state("b1", "cancelled", only_from=("stored",))
    broadcasts.begin(read)
    assert broadcasts.progress("b1").state == "cancelled"


@pytest.mark.usefixtures("with_token")
def test_the_error_of_a_recipient_does_not_reach_the_terminal(cli: Cli) -> None:
    broadcasts = stored(cli, 1, "b")
    line = missed_line(7, Reason.FAILED, "ValueError: no\x1b[2J\u202e\ud800\nall is well")
    cli.client.rpush(keys.MISSED + broadcasts.of("b"), line)
    for options in ([], ["--csv"]):
        shown = cli.said("broadcast", "report", "b", *options)[1]
        assert r"ValueError: no\u001b[2J\u202e\ud800 all is well" in shown


@pytest.mark.usefixtures("with_token")
@pytest.mark.parametrize(
    ("state", "sentence"),
    [("cancelled", "b was cancelled and cannot be resumed"), ("done", "b has ended"), ("running", "b was not paused")],
)
def test_resume_says_why_it_does_nothing(cli: Cli, state: str, sentence: str) -> None:
    broadcasts = stored(cli, 1, "b")
    if state != "running":
        broadcasts.end(broadcasts.progress("b"), state, {})
    assert cli.said("broadcast", "resume", "b") == [sentence]


@pytest.mark.usefixtures("with_token")
def test_a_module_that_raises_is_shown_with_its_traceback(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a module of a handler that raises, and that shows the token
    token = f"1:{'A' * 35}"
    monkeypatch.setattr(BotContext, "settings", lambda _: Settings(bot_token=token, _env_file=None))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "raising_module.py").write_text(f"x = 1\nraise KeyError({token!r})\n")
    # When it is named
    said = cli.said("broadcast", "start", "--sessions", "--handler", "raising_module:x")
    # Then its traceback is shown above the sentence, from its own code on and without the token
    assert cli.code == 1
    assert said[:2] == [
        "Traceback (most recent call last):",
        f'  File "{tmp_path}/raising_module.py", line 2, in <module>',
    ]
    assert "failed with KeyError; fix the module (the traceback above shows where)" in said[-1]
    assert token not in "".join(said)


@pytest.mark.usefixtures("with_token")
def test_arguments_that_no_broadcast_has_are_refused(cli: Cli) -> None:
    for command in ("status", "cancel", "report"):
        assert r"'\udcff' is not UTF-8 text" in cli.text("broadcast", command, os.fsdecode(b"\xff"))
    assert "nan is not a finite number" in cli.text("broadcast", "start", "--rate", "nan", *SAYS_HI)


def test_the_time_left_is_only_shown_while_the_broadcast_proceeds(cli: Cli) -> None:
    stored(cli, 1, "b")
    assert cli.said("broadcast", "status", "b")[2] == "0.0 per second"
