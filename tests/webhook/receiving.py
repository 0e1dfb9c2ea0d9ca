"""The real `python -m poller webhook`, and one who sends to it as Telegram does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import requests

from poller.webhook.door import secret_from
from sandbox.ports import free_port
from tests.poller.bot_api import TOKEN
from tests.poller.running import RunningPoller
from tests.poller.waiting import WITHIN_S, until

SECRET = secret_from(TOKEN)
HEADER = "X-Telegram-Bot-Api-Secret-Token"
PATH = "/hooks/bot"


class Receiver(RunningPoller):
    """Listens, on a port of its own, when this returns."""

    def __init__(self, directory: Path, *arguments: str, **settings: object) -> None:
        self.port = int(str(settings.get("WEBHOOK_PORT") or free_port()))
        self.address = f"http://127.0.0.1:{self.port}"
        self.url = self.address + PATH
        self.redis_url = str(settings["REDIS_URL"])
        usual = {"BOT_TOKEN": TOKEN, "WEBHOOK_URL": f"https://bot.example.org{PATH}", "WEBHOOK_PORT": self.port}
        super().__init__(directory, "webhook", *arguments, **{**usual, **settings})
        until(self._answers)

    def _answers(self) -> bool:
        assert not self._ended(), self.lines
        try:
            return requests.get(f"{self.address}/healthz", timeout=WITHIN_S).ok
        except requests.ConnectionError:
            return False

    def send(self, update: Any, session: requests.Session | None = None) -> requests.Response:
        return (session or requests).post(self.url, json=update, headers={HEADER: SECRET}, timeout=WITHIN_S)
