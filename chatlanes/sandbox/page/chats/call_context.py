"""The context of a call of the bot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from chatlanes.sandbox.page.chats.history import ChatHistory, ChatMessage
from chatlanes.sandbox.simulator.calls.files import FileStore
from chatlanes.sandbox.simulator.calls.params import Params, listed, whole


@dataclass
class CallContext:
    """`bot` is its User object; `publish` sends events that are not messages. `answers` is the update of the call."""

    bot: dict[str, Any]
    history: ChatHistory
    files: FileStore
    publish: Callable[[str, dict[str, Any]], None]
    answers: int | None = None
    #: Presses of buttons: callback_query_id -> (chat, user).
    queries: dict[str, tuple[int, int]] = field(default_factory=dict)

    def message(self, chat_id: int, params: Params) -> ChatMessage | None:
        """The message that a call names."""
        return self.history.message(chat_id, whole(params, "message_id", 0))


def ids_in(params: Params) -> list[int]:
    """Those of `message_ids`."""
    return [whole({"id": each}, "id", 0) for each in listed(params, "message_ids")]


def without(raw: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in raw.items() if name not in names}
