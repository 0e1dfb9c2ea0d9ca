"""A misbehaving Bot API server neither ends the poller nor stops it permanently."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from celery_lanes.embedded_server import Server
from celery_lanes.protocol import connect
from tests.poller.hostile_server import CONFLICT, DEEP, RESULTS, WIRE, HostileServer, flood, result
from tests.poller.lanes import buried, lane
from tests.poller.process import RunningPoller
from tests.support import ROOT
from tests.support.bot_api import TOKEN, message
from tests.support.waiting import until


@pytest.fixture(scope="module")
def hostile() -> Iterator[HostileServer]:
    server = HostileServer()
    yield server
    server.close()


class Pollers:
    """Reuses one poller for as many cases as it survives."""

    def __init__(self, directory: Path, server: HostileServer, redis_url: str) -> None:
        self._directory = directory
        self._server = server
        self._settings = {
            "BOT_TOKEN": TOKEN,
            "BOT_API_URL": server.url,
            "REDIS_URL": redis_url,
            "POLL_TIMEOUT": 0,
            "POLL_RETRY_MAX": 0.1,
        }
        self._running: RunningPoller | None = None

    def one(self) -> RunningPoller:
        if self._running and self._running.has_ended:
            self.end()
        if not self._running:
            self._running = RunningPoller(self._directory, **self._settings)
        return self._running

    def end(self) -> None:
        if self._running:
            self._running.end()
            self._running = None


@pytest.fixture(scope="module")
def pollers(hostile: HostileServer, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pollers]:
    with connect(server.url) as client:  # earlier tests may have left updates with the same ids
        client.flushall()
    pollers = Pollers(tmp_path_factory.mktemp("hostile"), hostile, server.url)
    yield pollers
    pollers.end()


ids = count(1)


@pytest.mark.parametrize("name", {**WIRE, **RESULTS["getUpdates"]})
def test_poller_survives_any_answer_to_get_updates(
    hostile: HostileServer, pollers: Pollers, server: Server, name: str
) -> None:
    hostile.instead = {"getUpdates": {**WIRE, **RESULTS["getUpdates"]}[name]}
    check_recovery(hostile, pollers.one(), server)


@pytest.mark.parametrize("name", RESULTS["getWebhookInfo"])
def test_poller_survives_any_answer_to_get_webhook_info(
    hostile: HostileServer, pollers: Pollers, server: Server, name: str
) -> None:
    hostile.instead = {"getUpdates": lambda: iter([CONFLICT]), "getWebhookInfo": RESULTS["getWebhookInfo"][name]}
    check_recovery(hostile, pollers.one(), server)


def check_recovery(hostile: HostileServer, poller: RunningPoller, server: Server) -> None:
    """The poller repeats its request, and fetches updates as soon as the server behaves."""
    asked_again(hostile, poller, "getUpdates")
    update_id = next(ids)
    hostile.updates = [message() | {"update_id": update_id}]
    hostile.instead = {}
    until(lambda: update_id in lane(server.url) or poller.has_ended)
    assert not poller.has_ended, poller.lines[-3:]
    assert not poller.told("Traceback")


def asked_again(hostile: HostileServer, poller: RunningPoller, method: str) -> None:
    asked = len(hostile.asked)
    until(lambda: hostile.asked[asked:].count(method) >= 2 or poller.has_ended)


def test_poller_survives_any_answer_to_get_me(hostile: HostileServer, pollers: Pollers, server: Server) -> None:
    pollers.end()
    cases = {**WIRE, **RESULTS["getMe"]}
    hostile.instead = {"getMe": cases["nothing"]}
    poller = pollers.one()
    for name, pieces in cases.items():
        hostile.instead = {"getMe": pieces}
        asked_again(hostile, poller, "getMe")
        assert not poller.has_ended, (name, poller.lines[-3:])
    hostile.instead = {}
    check_recovery(hostile, poller, server)


@pytest.mark.parametrize("retry_after", ["1e300", "9" * 401, "1e999"], ids=["1e300", "401 digits", "infinite"])
def test_absurd_wait_is_limited_to_an_hour(
    tmp_path: Path, redis_url: str, hostile: HostileServer, retry_after: str
) -> None:
    hostile.instead = {"getMe": lambda: iter([flood(retry_after)])}
    poller = RunningPoller(tmp_path, BOT_TOKEN=TOKEN, BOT_API_URL=hostile.url, REDIS_URL=redis_url)
    try:
        poller.tells("429, too many requests; retrying, next attempt in 3600.0 s")
        poller.stop()
    finally:
        poller.end()
        hostile.instead = {}


def test_the_offset_moves_past_an_update_that_is_nested_too_deeply(
    tmp_path: Path, redis_url: str, hostile: HostileServer, pollers: Pollers
) -> None:
    # Given a poll that returns nothing but such an update, and no other poller
    pollers.end()
    hostile.updates = [{**message(), "update_id": 5, "message": {**message()["message"], "x": DEEP}}]
    poller = RunningPoller(tmp_path, BOT_TOKEN=TOKEN, BOT_API_URL=hostile.url, REDIS_URL=redis_url, POLL_TIMEOUT=0)
    try:
        # Then it is buried, and confirmed to Telegram
        until(lambda: buried(redis_url) == 1 and not hostile.updates)
        # And the next update is polled
        hostile.updates = [message() | {"update_id": 6}]
        until(lambda: lane(redis_url) == [6])
        poller.stop()
        assert not poller.told("valid id")
        assert poller.told("2 updates so far")
    finally:
        poller.end()
        hostile.updates = []


def test_webhook_info_is_shown_escaped(tmp_path: Path, hostile: HostileServer) -> None:
    info = {"url": "https://x/\x1b[2J\nwebhook: none", "allowed_updates": ["\x9b2J"], "max_connections": "\u202e"}
    hostile.instead = {"getWebhookInfo": lambda: iter([result(info)])}
    command = [sys.executable, "-m", "chatlanes", "webhook", "info"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "BOT_TOKEN": TOKEN, "BOT_API_URL": hostile.url}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    hostile.instead = {}
    assert done.stdout.startswith(r"webhook: https://x/\u001b[2J\nwebhook: none" + "\n")
    assert not set("\x1b\x9b\u202e") & set(done.stdout)
