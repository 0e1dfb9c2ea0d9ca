"""ctx.broadcast refuses recipients that are not chat ids, before anything is stored."""

from __future__ import annotations

from typing import Any, cast

import pytest

from chatlanes.bot.broadcasting import start_broadcast
from chatlanes.bot.stored import Stored
from chatlanes.broadcasts import RecipientsError
from chatlanes.settings import Settings
from chatlanes.settings.imports import ImportPathError


@pytest.mark.parametrize("to", ["123", "session", b"123", 123, None, [[7]]])
def test_what_is_not_an_iterable_of_chat_ids_is_refused(to: Any) -> None:
    assert refusal(to) == f"a broadcast to {to!r}: give chat ids, such as [123456], or 'sessions'"


@pytest.mark.parametrize("chat", ["ann", "12", None, 0, True, 1.7, float("inf"), 2**52 + 1, -(2**70)])
def test_what_is_not_a_chat_id_is_named(chat: Any) -> None:
    assert refusal(iter([7, chat, 8])) == f"a broadcast to {chat!r}: give chat ids, such as [123456], or 'sessions'"


@pytest.mark.parametrize(
    ("method", "handler", "error"),
    [
        ("sendMessage", None, "sendMessage needs text: pass it as a parameter"),
        (None, "nowhere:handle", "handler=nowhere:handle"),
    ],
)
def test_what_would_fail_for_each_recipient_is_refused(method: str | None, handler: str | None, error: str) -> None:
    with pytest.raises((ValueError, ImportPathError), match=f"^{error}"):
        start([7], method, handler, None, False, {})


def start(*given: Any) -> str:
    return start_broadcast(Settings(bot_token="1:A", _env_file=None), cast("Stored", None), *given)


def refusal(to: Any) -> str:
    with pytest.raises(RecipientsError) as refused:
        start(to, "sendMessage", None, None, False, {"text": "hi"})
    return str(refused.value)
