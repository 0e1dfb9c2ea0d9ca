"""A server and a client that calls it, for each test its own."""

from collections.abc import Iterator

import pytest
from http_server import TOKEN, Server

from chatlanes.telegram import retries
from chatlanes.telegram.client import BotApi


@pytest.fixture(autouse=True)
def quick_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "PAUSES_S", (0.0, 0.0, 0.0))


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def api(server: Server) -> Iterator[BotApi]:
    api = BotApi(server.url, TOKEN)
    yield api
    api.close()
