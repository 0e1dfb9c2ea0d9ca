"""From polling to a webhook and back, with the project's own commands, while updates arrive."""

from __future__ import annotations

from pathlib import Path

import requests

from chatlanes_sandbox.simulator import Simulator
from tests.poller.lanes import lane
from tests.poller.process import RunningPoller
from tests.poller.webhook.conftest import StartReceiver
from tests.poller.webhook.process import ReceiverProcess, pressed
from tests.support.bot_api import TOKEN, message
from tests.support.waiting import until

CHATS = range(1, 6)


def confirmed(simulator: Simulator) -> bool:
    return bool(simulator.stats()["confirmed"] == simulator.stats()["added"])


def test_switching_loses_and_repeats_nothing(
    simulator: Simulator, start_receiver: StartReceiver, redis_url: str, tmp_path: Path
) -> None:
    # Given a poller and a receiver of one bot
    receiver = start_receiver("--workers=2", BOT_API_URL=simulator.url)
    settings = {
        "BOT_TOKEN": TOKEN,
        "BOT_API_URL": simulator.url,
        "REDIS_URL": redis_url,
        "WEBHOOK_URL": receiver.url,
        "ALLOWED_UPDATES": "message,callback_query",
    }
    poller = RunningPoller(tmp_path, **settings)
    pushed: dict[int, list[int | None]] = {chat: [] for chat in CHATS}

    def life() -> None:
        for chat in CHATS:
            pushed[chat] += simulator.push(message(chat=chat), pressed(chat), message(chat=chat))

    def tell_telegram(*arguments: str) -> None:
        command = RunningPoller(tmp_path, "webhook", *arguments, **settings)
        assert command.exit_code() == 0, command.lines
        command.end()

    try:
        # When a webhook is set
        life()
        tell_telegram("set", "--max-connections=10")
        life()
        # Then the poller logs the conflict and how to end it
        poller.tells("`chatlanes webhook delete` ends it")
        until(lambda: confirmed(simulator))
        info = receiver_info(simulator)
        assert (info["url"], info["max_connections"]) == (receiver.url, 10)
        # And when the webhook is deleted, the poller continues
        life()
        tell_telegram("delete")
        life()
        poller.tells("Telegram: works again")
        until(lambda: confirmed(simulator))
        # Then each update was appended once
        for chat in CHATS:
            until(lambda chat=chat: sorted(lane(redis_url, chat)) == pushed[chat])  # type: ignore[misc]
    finally:
        poller.end()


def receiver_info(simulator: Simulator) -> dict[str, object]:
    url = f"{simulator.url}/bot{simulator.token}/getWebhookInfo"
    return dict(requests.get(url, timeout=60).json()["result"])


def test_pending_updates_are_dropped_only_on_request(
    simulator: Simulator, receiver: ReceiverProcess, tmp_path: Path
) -> None:
    settings = {"BOT_TOKEN": TOKEN, "BOT_API_URL": simulator.url, "WEBHOOK_URL": receiver.url}
    simulator.push(message(), message())
    for arguments, waiting in ((("delete",), 2), (("info",), 2), (("delete", "--drop-pending"), 0)):
        command = RunningPoller(tmp_path, "webhook", *arguments, **settings)
        assert command.exit_code() == 0
        assert simulator.stats()["pending"] == waiting
        command.end()
