"""aiogram's states, stored with the update: written in the step that settles it, readable on any worker.

The guarantees are those of storage.py. State and data of a key are read together, on another thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from aiogram.fsm.state import State
from aiogram.fsm.storage.base import BaseStorage, StateType, StorageKey
from aiogram.fsm.strategy import FSMStrategy, apply_strategy

from chatlanes.bot.adapters import storage
from chatlanes.bot.context import Context
from chatlanes.lanes.worker.executor import blocking_executor


class UpdateStorage(BaseStorage):
    """Replaces MemoryStorage. Only states of the update's own chat, or with GLOBAL_USER of its user, are accessible."""

    def __init__(self, strategy: FSMStrategy) -> None:
        self._strategy = strategy

    async def set_state(self, key: StorageKey, state: StateType = None) -> None:
        await self._keep(key, "state", state.state if isinstance(state, State) else state)

    async def get_state(self, key: StorageKey) -> str | None:
        found: str | None = await self._load(key, "state")
        return found

    async def set_data(self, key: StorageKey, data: Mapping[str, Any]) -> None:
        await self._keep(key, "data", dict(data) or None)

    async def get_data(self, key: StorageKey) -> dict[str, Any]:
        return dict(await self._load(key, "data") or {})

    async def close(self) -> None:
        """Nothing to close: the worker owns the connections to Redis."""

    async def _load(self, key: StorageKey, part: str) -> Any:
        return storage.load(await self._fetched(key), _name(key, part))

    async def _keep(self, key: StorageKey, part: str, value: Any) -> None:
        storage.keep(await self._fetched(key), _name(key, part), value)

    def read_ahead(self, ctx: Context) -> None:
        """Fetch the state and data that the dispatcher will probably read."""
        user_id, chat_id = ctx.user_id, ctx.chat_id
        if user_id is None or chat_id is None:
            return
        key = StorageKey(0, *apply_strategy(self._strategy, chat_id, user_id))
        storage.read_ahead((place, _name(key, part)) for place in self._places(key) for part in ("state", "data"))

    async def _fetched(self, key: StorageKey) -> storage.Place:
        """Fetch state and data of a key; returns the first place that is safe for this update."""
        places = self._places(key)
        wanted = [(place, _name(key, part)) for place in places for part in ("state", "data")]
        if storage.is_unread(wanted):
            await blocking_executor().call(partial(storage.fetch, wanted))
        return next(filter(storage.is_safe, places), places[0])

    def _places(self, key: StorageKey) -> list[storage.Place]:
        if self._strategy is FSMStrategy.GLOBAL_USER:
            return [f"user:{key.user_id}"]
        # With ORDER_BY=topic the other topics of the chat run at the same time.
        return [key.chat_id, *([f"topic:{key.chat_id}:{key.thread_id}"] if key.thread_id else [])]


def _name(key: StorageKey, part: str) -> str:
    more = (key.user_id, key.thread_id, key.business_connection_id, key.destiny)
    return ":".join(["aiogram", *("" if each is None else str(each) for each in more), part])
