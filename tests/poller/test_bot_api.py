"""Bot API calls of the poller against the simulator; no error contains the token."""

import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from celery_lanes.embedded_server import free_port
from chatlanes.poller.bot_api import FloodedError, PollConflictError, Telegram, TelegramTroubleError, TokenRefusedError
from chatlanes_sandbox.simulator import Simulator
from tests.support.bot_api import TOKEN, set_webhook

SECRET = TOKEN.partition(":")[2]


@pytest.fixture
def telegram(simulator: Simulator) -> Iterator[Telegram]:
    with closing(Telegram(simulator.url, TOKEN, answer_within_s=0.5)) as telegram:
        yield telegram


def ask_for(url: str, *kinds: str) -> None:
    with closing(Telegram(url, TOKEN, kinds)) as telegram:
        telegram.updates(None, 0)


def test_get_me_returns_the_bot(telegram: Telegram) -> None:
    assert telegram.username() == "simulated_bot"


def test_higher_offset_confirms_and_fetches_the_next(simulator: Simulator, telegram: Telegram) -> None:
    ids = simulator.push({"message": {"text": "a"}}, {"message": {"text": "b"}})
    assert telegram.updates(None, 0) == [
        {"update_id": ids[0], "message": {"text": "a"}},
        {"update_id": ids[1], "message": {"text": "b"}},
    ]
    assert telegram.updates(ids[1], 0) == [{"update_id": ids[1], "message": {"text": "b"}}]


def test_final_confirmation_leaves_later_updates(simulator: Simulator, telegram: Telegram) -> None:
    first, second = simulator.push({"message": {}}, {"message": {}})
    assert first
    telegram.confirm(first + 1)
    assert simulator.stats()["confirmed"] == 1
    assert telegram.updates(None, 0) == [{"update_id": second, "message": {}}]


def test_allowed_updates_are_sent(simulator: Simulator) -> None:
    ask_for(simulator.url, "message")
    assert simulator.push({"message": {}}, {"poll": {}})[1] is None


def test_without_allowed_updates_the_last_list_stays(simulator: Simulator, telegram: Telegram) -> None:
    ask_for(simulator.url, "message")
    telegram.updates(5, 0)
    assert simulator.push({"message": {}}, {"poll": {}})[1] is None


@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [
        ({"status": 401}, TokenRefusedError, "the bot token (401 Unauthorized)"),
        ({"status": 404}, TokenRefusedError, "the bot token (404 Not Found)"),
        ({"status": 502}, TelegramTroubleError, "502 Bad Gateway"),
        ({"status": 502, "body": "<html>"}, TelegramTroubleError, "502 Bad Gateway, not an answer of a Bot API"),
        ({"body": '{"ok":true,"result":{}}'}, TelegramTroubleError, "not a list"),
        ({"status": 302, "body": ""}, TelegramTroubleError, "302 Found, not an answer"),
        ({"status": 429, "retry_after": 9}, FloodedError, "429"),
        ({"reset": True}, TelegramTroubleError, "no answer (Connection reset by peer)"),
        ({"hang_s": 5.0}, TelegramTroubleError, "no answer in time"),
    ],
)
def test_failures_are_typed_errors(
    simulator: Simulator, telegram: Telegram, fault: dict[str, Any], kind: type[Exception], text: str
) -> None:
    simulator.fault(method="getUpdates", **fault)
    with pytest.raises(kind) as caught:
        telegram.updates(None, 0)
    assert type(caught.value) is kind
    assert text in str(caught.value)


def test_conflicting_webhook_is_named_by_its_host(simulator: Simulator, telegram: Telegram) -> None:
    set_webhook(simulator, "https://hooks.example.org/secret-path")
    with pytest.raises(PollConflictError) as caught:
        telegram.updates(None, 0)
    assert "a webhook at hooks.example.org gets" in str(caught.value)
    assert "secret-path" not in str(caught.value)


def test_conflicting_poller_is_reported(simulator: Simulator, telegram: Telegram) -> None:
    simulator.fault(method="getUpdates", status=409)
    with pytest.raises(PollConflictError, match="another poller"):
        telegram.updates(None, 0)


@pytest.fixture
def closed_port() -> str:
    return f"http://127.0.0.1:{free_port()}"


@pytest.fixture
def no_tls(simulator: Simulator) -> str:
    return simulator.url.replace("http:", "https:")


@pytest.fixture
def silent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("address", ["closed_port", "no_tls", "silent", "http://nowhere.invalid", "http://127.0.0.1:1"])
@pytest.mark.parametrize("call", [Telegram.username, lambda telegram: telegram.updates(5, 0)])
def test_token_is_in_no_error_or_its_causes(
    request: pytest.FixtureRequest, address: str, call: Callable[[Telegram], Any]
) -> None:
    url = address if address.startswith("http") else request.getfixturevalue(address)
    with closing(Telegram(url, TOKEN, answer_within_s=0.2)) as telegram, pytest.raises(TelegramTroubleError) as caught:
        call(telegram)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
