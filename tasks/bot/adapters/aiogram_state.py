"""aiogram's states, kept with the update: written in the step that settles it, on any worker.

Promises what kept.py promises. Redis is asked on another thread, and once for a key's state and data.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from aiogram.fsm.state import State
from aiogram.fsm.storage.base import BaseStorage, StateType, StorageKey

from tasks.bot.adapters import kept


class UpdateStorage(BaseStorage):
    """In the place of MemoryStorage. Only states of the update's own chat can be had."""

    async def set_state(self, key: StorageKey, state: StateType = None) -> None:
        await _keep(key, "state", state.state if isinstance(state, State) else state)

    async def get_state(self, key: StorageKey) -> str | None:
        found: str | None = await _load(key, "state")
        return found

    async def set_data(self, key: StorageKey, data: Mapping[str, Any]) -> None:
        await _keep(key, "data", dict(data) or None)

    async def get_data(self, key: StorageKey) -> dict[str, Any]:
        return dict(await _load(key, "data") or {})

    async def close(self) -> None:
        """Redis is the worker's."""


async def _load(key: StorageKey, part: str) -> Any:
    await _fetch(key)
    return kept.load(key.chat_id, _name(key, part))


async def _keep(key: StorageKey, part: str, value: Any) -> None:
    await _fetch(key)
    kept.keep(key.chat_id, _name(key, part), value)


async def _fetch(key: StorageKey) -> None:
    """What follows asks nobody."""
    wanted = [(key.chat_id, _name(key, part)) for part in ("state", "data")]
    if kept.is_wanting(wanted):
        await asyncio.to_thread(kept.fetch, wanted)


def _name(key: StorageKey, part: str) -> str:
    more = (key.user_id, key.thread_id, key.business_connection_id, key.destiny)
    return ":".join(["aiogram", *("" if each is None else str(each) for each in more), part])
