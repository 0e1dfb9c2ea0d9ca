"""Telegram's descriptions, and the results that they mean."""

from __future__ import annotations

import pytest

from chatlanes.broadcasts import Reason, detail_of, reason_of
from chatlanes.telegram import NetworkError
from chatlanes.telegram.errors import refusal


@pytest.mark.parametrize(
    ("code", "description", "reason"),
    [
        (403, "Forbidden: bot was blocked by the user", Reason.BLOCKED),
        (403, "Forbidden: bot was kicked from the supergroup chat", Reason.BLOCKED),
        (403, "Forbidden: bot is not a member of the channel chat", Reason.BLOCKED),
        (403, "Forbidden: user is deactivated", Reason.DEACTIVATED),
        (403, "Forbidden: bot can't initiate conversation with a user", Reason.NEVER_STARTED),
        (400, "Bad Request: chat not found", Reason.NEVER_STARTED),
        (400, "Bad Request: message text is empty", Reason.REFUSED),
        (403, "Forbidden: CHAT_WRITE_FORBIDDEN", Reason.REFUSED),
        (502, "Bad Gateway", Reason.UNCERTAIN),
        (401, "Unauthorized", None),
        (429, "Too Many Requests: retry after 5000", None),
    ],
)
def test_a_description_means_a_result(code: int, description: str, reason: Reason | None) -> None:
    assert reason_of(refusal("sendMessage", 7, code, description, {})) is reason


def test_the_new_chat_of_a_migrated_group_is_named() -> None:
    description = "Bad Request: group chat was upgraded to a supergroup chat"
    error = refusal("sendMessage", -7, 400, description, {"migrate_to_chat_id": -1007})
    assert reason_of(error) is Reason.REFUSED
    assert detail_of(error) == f"{description}: its chat id is now -1007"


def test_only_a_call_that_may_have_been_sent_is_uncertain() -> None:
    assert reason_of(NetworkError("sendMessage", 7, "reset", uncertain=True)) is Reason.UNCERTAIN
    assert reason_of(NetworkError("sendMessage", 7, "refused", uncertain=False)) is None
    assert reason_of(ValueError("mine")) is None
