"""TeleBot's states and next steps, kept with the update: written in the step that settles it, on any worker.

Promises that a failed attempt leaves them as they were, and that a next step which another process could not find is
refused where it is registered. They are JSON, under the key of the update's chat.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from telebot.asyncio_storage.base_storage import StateStorageBase as AsyncStateStorageBase
from telebot.handler_backends import HandlerBackend
from telebot.storage.base_storage import StateDataContext, StateStorageBase

from tasks.bot.adapters import kept


def _load(chat_id: Any, key: str) -> Any:
    return kept.load(chat_id, f"telebot:{key}")


def _keep(chat_id: Any, key: str, value: Any) -> None:
    kept.keep(chat_id, f"telebot:{key}", value)


class States(StateStorageBase):
    """In the place of StateMemoryStorage. Only those of the update's own chat can be had."""

    def set_state(self, chat_id: int, user_id: int, state: Any, *where: Any, **place: Any) -> bool:
        key = _state_key(chat_id, user_id, where, place)
        _keep(chat_id, key, {"data": {}, **(_load(chat_id, key) or {}), "state": getattr(state, "name", state)})
        return True

    def get_state(self, chat_id: int, user_id: int, *where: Any, **place: Any) -> Any:
        return (_load(chat_id, _state_key(chat_id, user_id, where, place)) or {}).get("state")

    def delete_state(self, chat_id: int, user_id: int, *where: Any, **place: Any) -> bool:
        was = _load(chat_id, key := _state_key(chat_id, user_id, where, place))
        _keep(chat_id, key, None)
        return was is not None

    def get_data(self, chat_id: int, user_id: int, *where: Any, **place: Any) -> Any:
        return (_load(chat_id, _state_key(chat_id, user_id, where, place)) or {}).get("data", {})

    def set_data(self, chat_id: int, user_id: int, key: str, value: Any, *where: Any, **place: Any) -> None:
        data = self.get_data(chat_id, user_id, *where, **place)
        if not self.save(chat_id, user_id, {**data, key: value}, *where, **place):
            raise RuntimeError("no state is set for this user, so that no data can be")

    def reset_data(self, chat_id: int, user_id: int, *where: Any, **place: Any) -> bool:
        return self.save(chat_id, user_id, {}, *where, **place)

    def save(self, chat_id: int, user_id: int, data: dict[str, Any], *where: Any, **place: Any) -> bool:
        was = _load(chat_id, key := _state_key(chat_id, user_id, where, place))
        if was is not None:
            _keep(chat_id, key, {**was, "data": data})
        return was is not None

    def get_interactive_data(self, chat_id: int, user_id: int, *where: Any, **place: Any) -> StateDataContext:
        return StateDataContext(self, chat_id, user_id, *where, **place)


class AsyncStates(AsyncStateStorageBase):
    """The same for AsyncTeleBot: Redis is asked on another thread."""

    def __init__(self) -> None:
        self._states = States()

    def __getattribute__(self, name: str) -> Any:
        if name not in _ASYNC:
            return super().__getattribute__(name)
        found = getattr(self._states, name)

        async def on_a_thread(*arguments: Any, **named: Any) -> Any:
            return await asyncio.to_thread(found, *arguments, **named)

        return on_a_thread

    def get_interactive_data(self, chat_id: int, user_id: int, *where: Any, **place: Any) -> AsyncData:
        return AsyncData(self._states, (chat_id, user_id), where, place)


_ASYNC = ("set_state", "get_state", "delete_state", "get_data", "set_data", "reset_data", "save")


class AsyncData:
    """`async with bot.retrieve_data(…) as data`: saved at its end."""

    def __init__(self, states: States, whose: tuple[int, int], where: Any, place: Any) -> None:
        self._states, self._whose, self._where, self._place = states, whose, where, place

    async def __aenter__(self) -> Any:
        self.data = await asyncio.to_thread(self._states.get_data, *self._whose, *self._where, **self._place)
        return self.data

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._states.save, *self._whose, self.data, *self._where, **self._place)


class NextSteps(HandlerBackend):
    """In the place of MemoryHandlerBackend: what register_next_step_handler and register_for_reply register."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def register_handler(self, handler_group_id: Any, handler: Any) -> None:
        key = self._key(handler_group_id)
        step = {"name": _name_of(handler["callback"]), "args": handler["args"], "kwargs": handler["kwargs"]}
        try:
            _keep(self._chat(handler_group_id), key, [*(_load(self._chat(handler_group_id), key) or []), step])
        except TypeError as error:
            raise TypeError(f"the arguments of the next step {step['name']} cannot be kept: {error}") from None

    def clear_handlers(self, handler_group_id: Any) -> None:
        _keep(self._chat(handler_group_id), self._key(handler_group_id), None)

    def get_handlers(self, handler_group_id: Any) -> list[dict[str, Any]] | None:
        steps = _load(self._chat(handler_group_id), key := self._key(handler_group_id))
        if steps is None:
            return None
        _keep(self._chat(handler_group_id), key, None)
        return [{"callback": _found(step["name"]), "args": step["args"], "kwargs": step["kwargs"]} for step in steps]

    def _chat(self, group: Any) -> Any:
        """Next steps are a chat's; those for a reply are a message's, of the chat that the update is from."""
        return group if self._name == "next" else None

    def _key(self, group: Any) -> str:
        return f"{self._name}:{group}"


def _name_of(callback: Callable[..., Any]) -> str:
    name = f"{callback.__module__}:{callback.__qualname__}"
    if "<" in name or _found(name) is not callback:
        raise ValueError(f"{name} cannot be a next step: another process has to find it; use a function of a module")
    return name


def _found(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = sys.modules[module]
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _state_key(chat_id: int, user_id: int, where: tuple[Any, ...], place: dict[str, Any]) -> str:
    """`where` and `place` are business connection, thread and bot, in TeleBot's order."""
    more = [str(each) for each in (*where, *place.values()) if each is not None]
    return ":".join(["state", str(chat_id), str(user_id), *more])
