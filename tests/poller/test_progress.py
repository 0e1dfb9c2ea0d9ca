"""Repeatedly dropped updates cause a warning; the logged backlog is the current one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chatlanes_sandbox.simulator import Simulator
from tests.poller.conftest import StartPoller
from tests.poller.hostile_server import HostileServer, http, result
from tests.poller.lanes import drain, lane
from tests.support.bot_api import message
from tests.support.waiting import until

REPEATED = "the same updates keep arriving"
RESTARTED_IDS = "If the Bot API server restarted its ids, new updates are LOST this way"


@pytest.fixture
def hostile() -> Iterator[HostileServer]:
    server = HostileServer()
    yield server
    server.close()


def test_server_with_restarted_ids_is_a_warning(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    # Given appended updates
    ids = list(range(1, 6))
    simulator.push(*(message() | {"update_id": update_id} for update_id in ids))
    poller = start_poller()
    until(lambda: simulator.stats()["confirmed"] == len(ids))
    poller.stop()
    assert not poller.told("WARNING")
    # When the server is replaced, and new updates get the same ids
    simulator.reset()
    poller = start_poller()
    for done, update_id in enumerate(ids):
        simulator.push(message("new") | {"update_id": update_id})
        until(lambda done=done: simulator.stats()["confirmed"] == done + 1)
    # Then the log has one warning
    assert " WARNING " in poller.tells(RESTARTED_IDS)
    poller.stop()
    assert len(poller.told("WARNING")) == 1
    assert lane(redis_url) == ids


def test_repeated_updates_are_a_warning(hostile: HostileServer, start_poller: StartPoller, redis_url: str) -> None:
    hostile.instead = {"getUpdates": lambda: iter([result([message() | {"update_id": 5}])])}
    poller = start_poller(BOT_API_URL=hostile.url)
    assert " WARNING " in poller.tells(REPEATED)
    assert not poller.told(RESTARTED_IDS)
    assert lane(redis_url) == [5]


def test_batch_repeated_once_is_not_a_warning(simulator: Simulator, start_poller: StartPoller, redis_url: str) -> None:
    # Given an appended batch whose poller died before confirming it
    updates = [message() | {"update_id": update_id} for update_id in range(1, 101)]
    simulator.push(*updates)
    poller = start_poller()
    until(lambda: len(lane(redis_url)) == 100)
    poller.kill()
    # When it is fetched again, and other updates after it
    simulator.reset()
    simulator.push(*updates, message() | {"update_id": 101})
    poller = start_poller()
    until(lambda: simulator.stats()["confirmed"] == 101)
    # Then nothing is logged as a warning
    poller.stop()
    assert poller.told("101 updates so far: 1 added, 100 seen before")
    assert not poller.told("WARNING")


def test_last_line_has_the_current_backlog(simulator: Simulator, start_poller: StartPoller, redis_url: str) -> None:
    # Given a backlog that was finished after the last append
    poller = start_poller()
    for done in range(2):
        simulator.push(message())
        until(lambda done=done: simulator.stats()["confirmed"] == done + 1)
    drain(redis_url)
    # Then the last line has a backlog of 0
    poller.stop()
    assert poller.told("2 updates so far")[0].endswith("backlog 0")


@pytest.mark.parametrize(("command", "method"), [("set", "setWebhook"), ("delete", "deleteWebhook")])
def test_webhook_commands_work_without_get_webhook_info(
    hostile: HostileServer, start_poller: StartPoller, command: str, method: str
) -> None:
    missing = http(b'{"ok":false,"error_code":404,"description":"Not Found"}', b"404 Not Found")
    hostile.instead = {method: lambda: iter([result(True)]), "getWebhookInfo": lambda: iter([missing])}
    poller = start_poller("webhook", command, BOT_API_URL=hostile.url, WEBHOOK_URL="https://bot.example.org/hook")
    assert poller.exit_code() == 0
    assert poller.told(f"the server accepted {method}, but its getWebhookInfo failed")
