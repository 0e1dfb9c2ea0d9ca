"""Which messages the journal of an interrupted run says are deleted."""

from __future__ import annotations

from typing import Any

import pytest

from chatlanes.bot import interrupts
from chatlanes.telegram.client import prepare


@pytest.mark.parametrize(
    ("method", "params", "found"),
    [
        ("deleteMessage", {"chat_id": 7, "message_id": 3}, {("7", "3")}),
        ("deletemessage", {"message_id": "3", "chat_id": "-7"}, {("-7", "3")}),
        ("deleteMessages", {"chat_id": 7, "message_ids": [3, 4]}, {("7", "3"), ("7", "4")}),
        # As frameworks send it
        ("deleteMessages", {"chat_id": "7", "message_ids": "[3,4]"}, {("7", "3"), ("7", "4")}),
        ("deleteBusinessMessages", {"business_connection_id": "b-1", "message_ids": [3]}, {("b-1", "3")}),
        (
            "deleteEphemeralMessage",
            {"chat_id": -7, "receiver_user_id": 7, "ephemeral_message_id": 3},
            {("-7", "e7-3")},
        ),
        ("sendMessage", {"chat_id": 7, "text": "3"}, set()),
        # Parameters that Telegram refuses
        ("deleteMessage", {"chat_id": 7}, set()),
        ("deleteMessages", {"chat_id": "a b:c", "message_ids": [3]}, set()),
    ],
)
def test_a_deletion_is_known_by_its_name(method: str, params: dict[str, Any], found: set[interrupts.Place]) -> None:
    suffix = interrupts.deletions_of(prepare(method, params))
    assert interrupts.deleted_by([f"{method}:hash{suffix}"]) == found
    # The journal separates its fields by blanks
    assert " " not in suffix


@pytest.mark.parametrize(
    ("result", "found"),
    [
        ({"message_id": 3, "chat": {"id": -7}}, {("-7", "3")}),
        ({"message_id": 3, "chat": {"id": 7}, "business_connection_id": "b"}, {("b", "3")}),
        ([{"message_id": 3, "chat": {"id": 7}}, {"message_id": 4, "chat": {"id": 7}}], {("7", "3"), ("7", "4")}),
        (
            {"message_id": 0, "ephemeral_message_id": 3, "receiver_user": {"id": 7}, "chat": {"id": -7}},
            {("-7", "e7-3")},
        ),
        (True, set()),
        (None, set()),
        ({"message_id": 5}, set()),
    ],
)
def test_messages_in_a_result(result: Any, found: set[interrupts.Place]) -> None:
    assert interrupts.sent_by(result) == found
