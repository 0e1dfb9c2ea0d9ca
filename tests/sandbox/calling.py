"""Helpers of this folder: a client of the Bot API, and reading the output of processes."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from chatlanes_sandbox.simulator import Simulator

#: Far beyond what anything here takes; only a failure waits so long.
PATIENCE_S = 60.0


class BotClient:
    """A bot: calls methods over HTTP, at once or in the background."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self._threads = ThreadPoolExecutor()

    def __call__(self, method: str, **params: Any) -> requests.Response:
        url = f"{self.simulator.url}/bot{self.simulator.token}/{method}"
        return requests.post(url, json=params, timeout=PATIENCE_S)

    def result(self, method: str, **params: Any) -> Any:
        response = self(method, **params)
        assert response.status_code == 200, response.text
        return response.json()["result"]

    def updates(self, **params: Any) -> list[Any]:
        return list(self.result("getUpdates", **params))

    def ids(self, **params: Any) -> list[int]:
        return [update["update_id"] for update in self.updates(**params)]

    def long_poll(self, **params: Any) -> "Future[requests.Response]":
        """Returns as soon as the server has received it."""
        polls = self.simulator.stats()["polls"]
        answer = self._threads.submit(self, "getUpdates", **{"timeout": 50, **params})
        wait_until(lambda: self.simulator.stats()["polls"] > polls)
        return answer

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def wait_until(holds: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_at, "it did not come true"
        time.sleep(0.005)


@contextmanager
def ended_when_late(process: subprocess.Popen[str]) -> Iterator[None]:
    """Ends the process when the awaited output does not come in time, so that reading ends."""
    late = threading.Timer(PATIENCE_S * 2, process.terminate)
    late.start()
    try:
        yield
    finally:
        late.cancel()


def is_alive(pid: int) -> bool:
    """A process that has ended and was not asked for yet counts as gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def text_update(text: str = "hello", chat: int = 7, **fields: Any) -> dict[str, Any]:
    sender = {"id": chat, "is_bot": False, "first_name": "Ann"}
    message = {"message_id": 1, "date": 0, "chat": {"id": chat, "type": "private"}, "from": sender, "text": text}
    return {**fields, "message": message}
