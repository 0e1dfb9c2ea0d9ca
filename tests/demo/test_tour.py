"""The tour that `make run` serves: each button works, and an unknown button does not fail."""

from __future__ import annotations

from typing import Any

import pytest

from chatlanes.bot import Context
from chatlanes.demo import tour

CHAT = {"chat": {"id": 7, "type": "private"}, "from": {"id": 7, "is_bot": False, "first_name": "Ann"}, "message_id": 1}


class TourApi:
    """Records calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def call(self, method: str, /, **params: Any) -> Any:
        self.calls.append((method, params))
        return {"message_id": 2, "chat": CHAT["chat"]}


@pytest.fixture(autouse=True)
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tour.time, "sleep", lambda seconds: None)


def pressed(data: str, *, attempt: int = 1) -> TourApi:
    query = {"id": "1", "from": CHAT["from"], "message": {**CHAT, "text": "Hello"}, "data": data}
    api = TourApi()
    ctx = Context({"update_id": 1, "callback_query": query}, api, attempt=attempt)
    ctx.session = {}
    tour.bot(ctx)
    return api


def test_start_shows_all_buttons() -> None:
    api = TourApi()
    tour.bot(Context({"update_id": 1, "message": {**CHAT, "text": "/start"}}, api))
    [(_, params)] = api.calls
    shown = [button["text"] for row in params["reply_markup"]["inline_keyboard"] for button in row]
    assert shown == list(tour.STOPS)


@pytest.mark.parametrize("stop", [*tour.STOPS, "yes #1"])
def test_every_button_is_answered(stop: str) -> None:
    if stop == "Bury":
        with pytest.raises(tour.NeverRetriedError):
            pressed(stop)
        return
    if stop == "Fail twice":
        with pytest.raises(ConnectionError):
            pressed(stop, attempt=2)
    methods = [method for method, _ in pressed(stop, attempt=3).calls]
    assert methods[0] == "answerCallbackQuery"
    assert len(methods) > 1 or stop not in tour.STOPS
