"""lanes timers: list and cancel timers."""

from __future__ import annotations

import json

import pytest

from celery_lanes.protocol import NewMessage
from celery_lanes.transport.publish import timer_of
from chatlanes.bot.adapters.ptb.job_storage import NEVER_MS
from chatlanes.updates.intake import pack_update
from tests.cli.conftest import Cli


def set_timer(cli: Cli, owner: str, name: str, in_ms: int, lane: str = "", data: int = 1) -> None:
    bot_id = owner.partition("/")[0]
    content = json.dumps({"timer": {"name": name, "data": data}}).encode()
    message = NewMessage(f"{bot_id}:timer:", "shop.0", pack_update("(timer)", content), [lane or owner])
    assert cli.store.schedule(message, owner, name, in_ms=in_ms)


@pytest.fixture
def three(cli: Cli) -> Cli:
    """Two timers of chat 7, of two bots, and a job of python-telegram-bot in the lane of that chat."""
    set_timer(cli, "2/chat:7", "tea", in_ms=7_200_000)
    set_timer(cli, "1/chat:7", "tea", in_ms=3_600_000)
    set_timer(cli, "1/chat:77", "milk", in_ms=100_000)
    set_timer(cli, "1/jobs/alarm/3", "9f", in_ms=90_000_000, lane="1/chat:7")
    return cli


def listed(cli: Cli, *options: str) -> list[str]:
    return [json.loads(line)["owner"] for line in cli.said("timers", "list", "--json", *options)]


def test_list_shows_the_next_ones_first(three: Cli) -> None:
    head, *lines = three.said("timers", "list")
    assert head.split() == ["id", "due", "in", "owner", "name"]
    assert [line.split()[-2:] for line in lines] == [
        ["1/chat:77", "milk"],
        ["1/chat:7", "tea"],
        ["2/chat:7", "tea"],
        ["1/jobs/alarm/3", "9f"],
    ]
    assert lines[0].startswith("1:timer:")
    assert " s  1/chat:77" in lines[0]


def test_list_is_filtered(three: Cli) -> None:
    assert listed(three, "--chat", "7") == ["1/chat:7", "2/chat:7", "1/jobs/alarm/3"]
    assert listed(three, "--chat", "chat:77") == ["1/chat:77"]
    assert three.said("timers", "list", "--limit", "1")[0] == "the next 1 of 4 (--limit)"
    assert three.said("timers", "list", "--chat", "8") == ["no timer matches"]


def test_json_has_the_content(three: Cli) -> None:
    [line] = three.said("timers", "list", "--json", "--chat", "77")
    found = json.loads(line)
    assert found["update"] == {"timer": {"name": "milk", "data": 1}}
    assert found["id"].startswith(f"1:timer:{found['due_ms']}:")
    assert (found["queue"], found["lanes"]) == ("shop.0", ["1/chat:77"])


def test_empty_list(cli: Cli) -> None:
    assert cli.said("timers", "list") == ["no timer is set"]
    assert cli.said("timers", "list", "--json") == []


def test_timer_is_cancelled_by_its_id_or_by_chat_and_name(three: Cli) -> None:
    timer_id = json.loads(three.said("timers", "list", "--json")[0])["id"]
    assert three.said("timers", "cancel", timer_id) == [f"cancelled {timer_id}"]
    assert three.said("timers", "cancel", "9f", "--chat", "7")[0].startswith("cancelled 1:timer:")
    assert listed(three) == ["1/chat:7", "2/chat:7"]
    assert three.code == 0


def test_the_record_of_a_repeating_job_is_never_due(cli: Cli) -> None:
    set_timer(cli, "1/jobs/alarm/3", "9f", in_ms=NEVER_MS, lane="1/chat:7")
    assert cli.said("timers", "list")[1].split()[1:] == ["never", "1/jobs/alarm/3", "9f"]


@pytest.mark.parametrize("name", ["9f", "9f next"])
def test_a_repeating_job_ends_when_one_of_its_timers_is_cancelled(three: Cli, name: str) -> None:
    set_timer(three, "1/jobs/alarm/3", "9f next", in_ms=80_000_000, lane="1/chat:7")
    assert len(three.said("timers", "cancel", name, "--chat", "7")) == 1
    assert listed(three, "--chat", "7") == ["1/chat:7", "2/chat:7"]


def test_a_task_with_an_eta_is_listed_and_cancelled_by_its_id(cli: Cli) -> None:
    message = NewMessage("2b5c", "orders.0", b'{"headers":{"task":"charge"}}\n[[7],{},{}]', ["customer:9"])
    cli.store.schedule(message, *timer_of("2b5c"), in_ms=60_000)
    [line] = cli.said("timers", "list", "--json")
    assert json.loads(line)["id"] == "2b5c"
    assert cli.said("timers", "cancel", "2b5c") == ["cancelled 2b5c"]
    assert cli.said("timers", "list") == ["no timer is set"]


def test_a_timer_that_is_not_there_is_not_cancelled(three: Cli) -> None:
    why = "it was cancelled, or it is due already; to cancel one by its name, name its chat too"
    assert three.said("timers", "cancel", "tea") == [f"there is no timer tea: {why}"]
    assert three.said("timers", "cancel", "1:timer:5:1") == [f"there is no timer 1:timer:5:1: {why}"]
    [ambiguous] = three.said("timers", "cancel", "tea", "--chat", "7")
    assert ambiguous.startswith("2 timers are named tea: write one of the ids 1:timer:")
    assert three.code == 1
    assert len(listed(three)) == 4
