"""A client of the page's HTTP interface, without a browser."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import requests

from tests.sandbox.calling import PATIENCE_S, wait_until


class PageClient:
    """A browser that follows the page's events until its server ends, and does what one can do there."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.events: list[tuple[str, Any]] = []
        self.messages: dict[tuple[int, int], Any] = {}
        self._stream = requests.get(f"{url}/page/events", stream=True, timeout=PATIENCE_S * 4)
        threading.Thread(target=self._follow, daemon=True).start()
        wait_until(lambda: self.events)

    def _follow(self) -> None:
        kind = ""
        try:
            for line in self._stream.iter_lines():
                name, _, value = line.decode().partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    self._heard(kind, json.loads(value))
        except requests.RequestException:  # its server has ended
            self._stream.close()

    def _heard(self, kind: str, value: Any) -> None:
        for message in value["messages"] if kind == "snapshot" else [value] if kind == "message" else []:
            self.messages[message["chat_id"], message["message_id"]] = message
        self.events.append((kind, value))

    @property
    def snapshot(self) -> Any:
        return self.events[0][1]

    def last(self, kind: str) -> Any:
        """The newest event of this kind; None: there was none."""
        return next((value for told, value in reversed(self.events) if told == kind), None)

    def post(self, path: str, **body: Any) -> requests.Response:
        return requests.post(f"{self.url}/page/{path}", json=body, timeout=PATIENCE_S)

    def do(self, path: str, **body: Any) -> Any:
        response = self.post(path, **body)
        assert response.ok, response.text
        return response.json()

    def refused(self, path: str, **body: Any) -> str:
        response = self.post(path, **body)
        assert response.status_code == 400, response.text
        return str(response.json()["error"])

    def say(self, text: str, chat_id: int = 101, user_id: int = 101, **more: Any) -> Any:
        return self.do("send", chat_id=chat_id, user_id=user_id, text=text, **more)

    def photos(self, *contents: bytes, caption: str = "") -> requests.Response:
        data = {"chat_id": 101, "user_id": 101, "caption": caption}
        return requests.post(
            f"{self.url}/page/photos", data=data, files=[("file", each) for each in contents], timeout=PATIENCE_S
        )

    def get(self, path: str, **headers: str) -> requests.Response:
        return requests.get(f"{self.url}{path}", headers=headers, timeout=PATIENCE_S)

    def message(self, holds: Callable[[Any], object]) -> Any:
        """The first message that is so, now or soon."""
        found: list[Any] = []

        def is_there() -> bool:
            found[:] = [message for message in list(self.messages.values()) if holds(message)]
            return bool(found)

        wait_until(is_there)
        return found[0]
