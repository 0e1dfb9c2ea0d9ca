"""lanes dead: list, show, replay and drop dead letters."""

from __future__ import annotations

import json
import re

import pytest

from celery_lanes.cli import dead
from celery_lanes.monitoring import inspection
from chatlanes.cli.context import is_of_chat
from tests.cli.conftest import Cli

UPDATE = {"update_id": 5, "message": {"text": "buy 3 of it"}}


@pytest.fixture
def three(cli: Cli) -> Cli:
    """Three dead letters, not buried in their order of arrival: 1:11 of chat 7 last."""
    cli.append("1:11", "1/chat:7", update=UPDATE)
    [(_, fence)] = cli.take()
    cli.bury("1:12", "1/chat:8", problem="KeyError")
    cli.bury("2:13", "2/chat:7", queue="help.0")
    for attempt, message in ((4, "not yet"), (5, "a long story " * 20)):
        problem = {
            "type": "ValueError",
            "message": message,
            "attempt": attempt,
            "traceback": f"Traceback\n  at {attempt}\n",
        }
        if attempt == 5:
            cli.store.bury("1:11", fence, problem)
        else:
            cli.client.rpush("lanes:errors:1:11", json.dumps({"at_ms": 0, **problem}))
    # All three may have been buried in the same millisecond.
    cli.client.zadd("lanes:dead", {"1:12": 1_000, "2:13": 2_000, "1:11": 3_000}, xx=True)
    return cli


def test_list_shows_the_last_error_of_each(three: Cli) -> None:
    head, *lines = three.said("dead", "list")
    assert head.split() == ["id", "buried", "update", "error"]
    assert [line.split()[0] for line in lines] == ["1:12", "2:13", "1:11"]
    assert "message, chat 8, update 1:12  KeyError: 1:12 went wrong" in lines[0]
    assert lines[2].endswith("ValueError: a long story a long story a long story a long s…")


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        (["--chat", "7"], ["2:13", "1:11"]),
        (["--chat", "7", "--bot", "shop"], ["1:11"]),
        (["--bot", "help"], ["2:13"]),
        (["--chat", "2/chat:7"], ["2:13"]),
        (["--limit", "1"], ["1:11"]),
    ],
)
def test_list_is_filtered(three: Cli, options: list[str], ids: list[str]) -> None:
    listed = [json.loads(line) for line in three.said("dead", "list", "--json", *options)]
    assert [each["id"] for each in listed] == ids


def test_unknown_bot_is_reported_with_the_known_ones(three: Cli) -> None:
    assert three.said("dead", "list", "--bot", "shopp") == [
        "--bot shopp: there is no such bot; the bots are shop, help"
    ]
    assert three.code == 1


def test_empty_list(cli: Cli) -> None:
    assert cli.said("dead", "list") == ["nothing is buried"]
    assert cli.said("dead", "list", "--chat", "7") == ["no buried update matches"]
    assert cli.said("dead", "list", "--json") == []
    assert cli.said("dead", "replay", "--all") == ["nothing is buried"]
    assert cli.code == 0


def test_dead_letter_is_shown_with_errors_and_update(three: Cli) -> None:
    text = three.text("dead", "show", "1:11")
    assert text.index("ValueError: not yet\nTraceback\n  at 4") < text.index("ValueError: a long story")
    assert "lanes 1/chat:7" in text
    assert json.loads(text[text.index("\n{") :]) == UPDATE
    shown = json.loads(three.text("dead", "show", "1:11", "--json"))
    assert (shown["update"], len(shown["errors"]), shown["lanes"]) == (UPDATE, 2, ["1/chat:7"])
    [listed] = [json.loads(line) for line in three.said("dead", "list", "--json", "--limit", "1")]
    assert shown["error"] == listed["error"]
    assert shown["error"]["message"].startswith("a long story")


def test_a_traceback_that_repeats_is_shown_once(cli: Cli) -> None:
    # Given attempts of which the first three failed in one way and the last in another
    cli.append("1:11", "1/chat:7")
    [(_, fence)] = cli.take()
    for number in range(3):
        problem = {"at_ms": number, "type": "ValueError", "message": f"try {number}", "traceback": "in line 4"}
        cli.client.rpush("lanes:errors:1:11", json.dumps(problem))
    cli.store.bury("1:11", fence, {"type": "KeyError", "message": "no", "traceback": "in line 9"})
    shown = cli.said("dead", "show", "1:11")
    # Then each attempt is listed, above the traceback that it shares with those before it
    times = [f"1970-01-01 00:00:00 UTC  ValueError: try {number}" for number in range(3)]
    assert shown[3:8] == ["", *times, "in line 4"]
    assert (shown[9].rpartition("UTC  ")[2], shown[10]) == ("KeyError: no", "in line 9")


@pytest.mark.parametrize("verb", ["show", "replay", "drop"])
def test_id_that_is_not_buried_is_reported(three: Cli, verb: str) -> None:
    three.append("1:14")
    assert three.said("dead", verb, "1:14") == ["1:14 is not buried: it is ready"]
    assert three.said("dead", verb, "1:99")[0].startswith("1:99 is not buried: there is no such message")
    assert three.code == 1


def test_replay_all_keeps_the_order_of_arrival(three: Cli) -> None:
    three.bury("1:15", "1/chat:7")
    assert three.said("dead", "replay", "--all", "--chat", "7", "--bot", "shop") == ["replayed 2 updates"]
    ids, _ = inspection.in_lane(three.client, "1/chat:7", 10)
    assert ids == ["1:11", "1:15"]
    assert list(inspection.dead(three.client)) == ["1:12", "2:13"]
    # And single ones by their ids
    assert three.said("dead", "replay", "2:13", "1:12", "2:13") == ["replayed 2 updates"]
    assert inspection.dead(three.client) == {}


@pytest.fixture
def collected(three: Cli) -> Cli:
    """A dead letter with the updates 21, 23 and 24 of chat 9, and a group with 31 and 32 that waits in its lane."""
    three.collect("1/chat:9", 21, 23, 24)
    [(taken, fence)] = three.take()
    three.store.bury(taken, fence, {"type": "ValueError", "message": "no"})
    three.collect("1/chat:9", 31, 32)
    return three


@pytest.mark.parametrize("message_id", ["1:21", "1:23", "1:24"])
def test_a_group_is_found_by_the_id_of_each_of_its_updates(collected: Cli, message_id: str) -> None:
    text = collected.text("dead", "show", message_id)
    assert text.startswith("1:21  message, chat 9, update 21\none run of 3 updates: 1:21, 1:23, 1:24\n")
    assert '"update_id": 24' in text
    assert json.loads(collected.text("dead", "show", message_id, "--json"))["id"] == "1:21"
    assert collected.said("dead", "replay", message_id, "1:24") == ["replayed 3 updates"]
    assert "1:21" not in inspection.dead(collected.client)


def test_a_group_is_dropped_as_a_whole_and_listed_with_its_size(collected: Cli) -> None:
    assert "message, chat 9, update 21, and 2 more" in collected.text("dead", "list")
    assert collected.said("dead", "drop", "1:23") == [
        "Delete 3 updates permanently? There is no terminal to confirm on: use --yes"
    ]
    assert collected.said("dead", "drop", "1:23", "--yes") == ["dropped 3 updates"]
    assert collected.said("dead", "show", "1:24")[0].startswith("1:24 is not buried: there is no such message")


def test_a_group_that_is_not_buried_is_named(collected: Cli) -> None:
    assert collected.said("dead", "show", "1:32") == ["1:32 is not buried: it was collected with 1:31, which is ready"]
    # Neither the same number of another bot, nor one between those of the group
    for other in ("2:24", "1:22", "own:24x"):
        assert "there is no such message" in collected.text("dead", "show", other)
    assert "message, chat 9, update 31, and 1 more" in collected.text("chat", "9")


def test_drop_asks_for_confirmation(three: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a terminal
    assert three.said("dead", "drop", "--all") == [
        "Delete 3 updates permanently? There is no terminal to confirm on: use --yes"
    ]
    # With a terminal, and the answer no
    monkeypatch.setattr(dead, "_ask", lambda question: dead.click.confirm(question, abort=True))
    assert three.text("dead", "drop", "1:11", answer="n\n").endswith("[y/N]: n\nAborted!\n")
    assert (three.code, len(inspection.dead(three.client))) == (1, 3)
    # With the answer yes
    assert three.text("dead", "drop", "1:11", answer="y\n").endswith("dropped 1 update\n")
    assert three.said("dead", "drop", "--all", "--yes") == ["dropped 2 updates"]
    assert inspection.dead(three.client) == {}


@pytest.mark.parametrize("arguments", [[], ["1:11", "--all"], ["1:11", "--chat", "7"]])
def test_selection_must_be_unambiguous(three: Cli, arguments: list[str]) -> None:
    assert "give either IDs" in three.text("dead", "drop", *arguments) or "require --all" in three.text(
        "dead", "drop", *arguments
    )
    assert three.code == 2


@pytest.mark.parametrize(
    ("lane", "chat", "is_it"),
    [
        ("1/chat:7", "7", True),
        ("1/chat:77", "7", False),
        ("1/chat:-1007", "-1007", True),
        ("1/topic:7:3", "7", True),
        ("1/topic:3:7", "7", False),
        ("1/business:c0:7", "7", True),
        ("1/guest:7", "7", True),
        ("1/user:7", "7", True),
        ("1/user:7", "chat:7", False),
        ("1/chat:7", "chat:7", True),
        ("1/chat:7", "1/chat:7", True),
        ("2/chat:7", "1/chat:7", False),
        ("own key", "own key", True),
    ],
)
def test_lanes_of_a_chat(lane: str, chat: str, is_it: bool) -> None:
    assert is_of_chat(lane, chat) == is_it


def test_texts_of_others_do_not_reach_the_terminal(cli: Cli) -> None:
    # Given an update and an error that clear the screen, set the title of the terminal and begin lines
    hostile = "no\x1b[2J\x1b]0;owned\x07\x9b2J\u202e\nall is well"
    cli.append("1:11", "1/chat:7", update={"update_id": 5, "message": {"text": hostile + "\ud800"}})
    [(_, fence)] = cli.take()
    problem = {"type": "ValueError", "message": hostile, "attempt": 1, "traceback": f"ValueError: {hostile}"}
    cli.store.retry("1:11", fence, delay_ms=-1, problem=problem)
    cli.store.sweep(60_000)
    chat = cli.text("chat", "7")
    [(_, fence)] = cli.take()
    cli.store.bury("1:11", fence, problem)
    # Then every command shows them escaped
    shown = cli.text("dead", "show", "1:11")
    for text in (chat, shown, cli.text("dead", "list")):
        assert not set("\x1b\x07\x9b\u202e\ud800") & set(text)
        assert "no\\u001b[2J" in text
    assert re.findall(r"UTC  ValueError: no.*\\nall is well$", shown, re.MULTILINE)
