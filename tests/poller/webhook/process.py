"""A real `chatlanes webhook` process, and a client that posts to it as Telegram does."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import requests

from celery_lanes.embedded_server import free_port
from chatlanes.settings import secret_from
from tests.poller.process import RunningPoller
from tests.support.bot_api import TOKEN, message
from tests.support.waiting import WITHIN_S, until

SECRET = secret_from(TOKEN)
HEADER = "X-Telegram-Bot-Api-Secret-Token"
PATH = "/hooks/bot"


class ReceiverProcess(RunningPoller):
    """The constructor returns when the receiver listens, on a free port."""

    def __init__(self, directory: Path, *arguments: str, **settings: object) -> None:
        self.port = int(str(settings.get("WEBHOOK_PORT") or free_port()))
        self.address = f"http://127.0.0.1:{self.port}"
        self.url = self.address + PATH
        self.redis_url = str(settings["REDIS_URL"])
        usual = {"BOT_TOKEN": TOKEN, "WEBHOOK_URL": f"https://bot.example.org{PATH}", "WEBHOOK_PORT": self.port}
        super().__init__(directory, "webhook", *arguments, **{**usual, **settings})
        until(self._answers)

    def _answers(self) -> bool:
        assert not self.has_ended, self.lines
        try:
            return requests.get(f"{self.address}/healthz", timeout=WITHIN_S).ok
        except requests.ConnectionError:
            return False

    def send(self, update: Any, session: requests.Session | None = None) -> requests.Response:
        return (session or requests).post(self.url, json=update, headers={HEADER: SECRET}, timeout=WITHIN_S)

    def posts(self, *updates: Any) -> list[Future[requests.Response]]:
        """Posts all updates concurrently, each on its own connection."""
        threads = ThreadPoolExecutor(len(updates))
        answers = [threads.submit(self.send, update) for update in updates]
        threads.shutdown(wait=False)
        return answers

    def is_ready(self) -> bool:
        return requests.get(f"{self.address}/readyz", timeout=WITHIN_S).status_code == 200

    def connections(self) -> list[Any]:
        """TCP connections of the main process and its children."""
        main = psutil.Process(self.pid)
        all_of_them = [each for process in (main, *main.children()) for each in process.net_connections("tcp")]
        return [each for each in all_of_them if each.laddr.port == self.port]

    def workers(self) -> list[psutil.Process]:
        """Its child processes, if there are several."""
        return psutil.Process(self.pid).children()


def update(number: Any, chat: int = 7) -> dict[str, Any]:
    return {"update_id": number, **message(chat=chat)}


def pressed(chat: int = 7) -> dict[str, Any]:
    """A callback query of a private chat: Telegram sends it through another queue than the chat's messages."""
    person = {"id": chat, "is_bot": False, "first_name": "Ann"}
    asked = {"message_id": 1, "date": 0, "chat": {"id": chat, "type": "private"}}
    return {"callback_query": {"id": "1", "from": person, "message": asked, "chat_instance": "1", "data": "yes"}}
