"""AsyncTeleBot's states: those of TeleBot, with Redis asked on another thread."""

from __future__ import annotations

import asyncio
from typing import Any

from telebot.asyncio_storage.base_storage import StateDataContext, StateStorageBase

from chatlanes.bot.adapters.telebot.state import States

_ASYNC = frozenset({"set_state", "get_state", "delete_state", "get_data", "set_data", "reset_data", "save"})


class AsyncStates(StateStorageBase):
    """In the place of its StateMemoryStorage."""

    def __init__(self) -> None:
        self._states = States()

    def __getattribute__(self, name: str) -> Any:
        if name not in _ASYNC:
            return super().__getattribute__(name)
        found = getattr(self._states, name)

        async def on_a_thread(*arguments: Any, **named: Any) -> Any:
            return await asyncio.to_thread(found, *arguments, **named)

        return on_a_thread

    def get_interactive_data(self, chat_id: int, user_id: int, *where: Any, **place: Any) -> StateDataContext:
        """`async with bot.retrieve_data(…) as data`: saved at its end."""
        return StateDataContext(self, chat_id, user_id, *where, **place)
