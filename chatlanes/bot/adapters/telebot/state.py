"""TeleBot's states, stored with the update: written in the step that settles it, readable on any worker.

A failed attempt leaves them unchanged. They are JSON, under the key of the update's chat; states of another chat are
not accessible (UnsafeKeyError).
"""

from __future__ import annotations

from typing import Any

from telebot.storage.base_storage import StateDataContext, StateStorageBase

from chatlanes.bot.adapters.telebot.storage import keep, load


class States(StateStorageBase):
    """Replaces StateMemoryStorage. `where` and `place` are business connection, topic and bot, in this order."""

    def set_state(self, chat_id: int, user_id: int, state: Any, *where: Any, **place: Any) -> bool:
        key = _key(chat_id, user_id, *where, **place)
        was = load(chat_id, key) or {}
        keep(chat_id, key, {"data": {}, **was, "state": getattr(state, "name", state)})
        return True

    def get_state(self, chat_id: int, user_id: int, *where: Any, **place: Any) -> Any:
        return (load(chat_id, _key(chat_id, user_id, *where, **place)) or {}).get("state")

    def delete_state(self, chat_id: int, user_id: int, *where: Any, **place: Any) -> bool:
        was = load(chat_id, key := _key(chat_id, user_id, *where, **place))
        keep(chat_id, key, None)
        return was is not None

    def get_data(self, chat_id: int, user_id: int, *where: Any, **place: Any) -> Any:
        return (load(chat_id, _key(chat_id, user_id, *where, **place)) or {}).get("data", {})

    def set_data(self, chat_id: int, user_id: int, key: str, value: Any, *where: Any, **place: Any) -> None:
        data = self.get_data(chat_id, user_id, *where, **place)
        if not self.save(chat_id, user_id, {**data, key: value}, *where, **place):
            raise RuntimeError("no state is set for this user: call set_state before setting data")

    def reset_data(self, chat_id: int, user_id: int, *where: Any, **place: Any) -> bool:
        return self.save(chat_id, user_id, {}, *where, **place)

    def save(self, chat_id: int, user_id: int, data: dict[str, Any], *where: Any, **place: Any) -> bool:
        was = load(chat_id, key := _key(chat_id, user_id, *where, **place))
        if was is not None:
            keep(chat_id, key, {**was, "data": data})
        return was is not None

    def get_interactive_data(self, chat_id: int, user_id: int, *where: Any, **place: Any) -> StateDataContext:
        return StateDataContext(self, chat_id, user_id, *where, **place)


def _key(
    chat_id: int,
    user_id: int,
    business_connection_id: str | None = None,
    message_thread_id: int | None = None,
    bot_id: int | None = None,
) -> str:
    """The key of a state. TeleBot passes the last three arguments by position or by name. `bot_id` is not used, because
    the bot's id is part of every stored key.
    """
    more = {"business": business_connection_id, "topic": message_thread_id}
    given = [f"{name}={value}" for name, value in more.items() if value is not None]
    return ":".join(["state", str(chat_id), str(user_id), *given])
