"""Text from other systems, such as a description of the Bot API, becomes one short line."""

from __future__ import annotations

import json

import pytest

from chatlanes.poller.bot_api import TelegramTroubleError, result_of
from chatlanes.telegram.errors import BotApiError
from chatlanes.telegram.http_client import read_answer

HOSTILE = {
    "line breaks": "no\r\n2026-01-01 INFO poller: all is well",
    "colours": "no \x1b[2J\x1b[31mred",
    "other line breaks": "no\u2028and\x85on",
    "right to left": "no\u202etxet",
    "3 MB": "no" + "x" * 3_000_000,
}


@pytest.mark.parametrize("description", HOSTILE.values(), ids=HOSTILE)
def test_a_description_is_one_short_printable_line(description: str) -> None:
    body = json.dumps({"ok": False, "error_code": 400, "description": description}).encode()
    with pytest.raises(TelegramTroubleError) as polled:
        result_of("getMe", 400, body)
    with pytest.raises(BotApiError) as called:
        read_answer("sendMessage", 7, 400, body)
    for error in (polled.value, called.value):
        assert str(error).isprintable()
        assert len(str(error)) < 400
        assert "no" in str(error)


@pytest.mark.parametrize("code", ["x" * 1_000_000, [1], {"a": "\n"}, None])
def test_a_code_that_is_not_a_number_is_not_shown(code: object) -> None:
    with pytest.raises(TelegramTroubleError) as polled:
        result_of("getMe", 502, json.dumps({"ok": False, "error_code": code, "description": ["a", "\n"]}).encode())
    assert str(polled.value) == "502 without a description"


def test_a_code_of_400_digits_is_not_shown() -> None:
    body = json.dumps({"ok": False, "error_code": 10**399, "description": "no"}).encode()
    with pytest.raises(TelegramTroubleError, match=r"^502 no$"):
        result_of("getMe", 502, body)
    with pytest.raises(BotApiError) as called:
        read_answer("sendMessage", 7, 502, body)
    assert (called.value.code, len(str(called.value)) < 100) == (502, True)
