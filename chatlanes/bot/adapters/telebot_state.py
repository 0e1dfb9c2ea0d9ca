"""TeleBot's states and next steps, stored with the update: written in the step that settles it, readable on any worker.

The guarantees are those of storage.py. They are JSON, under the key of the update's chat; with ORDER_BY=user or topic,
per user or topic, because TeleBot reads next steps at every message, so they need a place in any case. A step is stored
by name: it must be a function of a module or a method of an object that a module holds, and is refused otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from telebot import types
from telebot.handler_backends import HandlerBackend
from telebot.storage.base_storage import StateDataContext, StateStorageBase

from chatlanes.bot.adapters import storage
from chatlanes.bot.adapters.storage_json import found_at
from chatlanes.bot.context import current
from chatlanes.bot.session import session_key_of
from chatlanes.bot.stored import UnsafeKeyError


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


#: The key that marks a dict as an encoded Telegram object, and the classes that can be decoded.
_OF_TELEGRAM = "\0telegram"
_KINDS = {"Message": types.Message, "CallbackQuery": types.CallbackQuery}

#: id of an object -> the path at which it was found, as a first guess.
_paths: dict[int, str] = {}


class NextSteps(HandlerBackend):
    """Replaces MemoryHandlerBackend. `name` is `next` (a handler group belongs to a chat) or `reply` (it belongs to a
    message in the update's chat).
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def register_handler(self, handler_group_id: Any, handler: Any) -> None:
        """Store a step. Raises ValueError and TypeError if it cannot be stored."""
        callback, args, kwargs = handler["callback"], handler["args"], handler["kwargs"]
        while isinstance(callback, partial):
            args, kwargs = (*callback.args, *args), {**callback.keywords, **kwargs}
            callback = callback.func
        step = {
            "name": _name_of(callback),
            "args": [_encoded(each) for each in args],
            "kwargs": {name: _encoded(each) for name, each in kwargs.items()},
        }
        place, key = self._place(handler_group_id)
        try:
            keep(place, key, [*(load(place, key) or []), step])
        except TypeError as error:
            raise TypeError(f"the arguments of the next step {step['name']} cannot be stored: {error}") from None

    def clear_handlers(self, handler_group_id: Any) -> None:
        keep(*self._place(handler_group_id), None)

    def get_handlers(self, handler_group_id: Any) -> list[dict[str, Any]] | None:
        place, key = self._place(handler_group_id)
        steps = load(place, key)
        if steps is None:
            return None
        keep(place, key, None)
        return [
            {
                "callback": _step(step["name"]),
                "args": [_decoded(each) for each in step["args"]],
                "kwargs": {name: _decoded(each) for name, each in step["kwargs"].items()},
            }
            for step in steps
        ]

    def load_handlers(self, *_: Any, **__: Any) -> None:
        """Nothing to load: the steps are in Redis."""

    def _place(self, group: Any) -> tuple[Any, str]:
        return (group if self._name == "next" else None), f"{self._name}:{group}"


def _encoded(value: Any) -> Any:
    kind = type(value).__name__
    return {_OF_TELEGRAM: kind, "json": value.json} if _KINDS.get(kind) is type(value) else value


def _decoded(value: Any) -> Any:
    if isinstance(value, dict) and _OF_TELEGRAM in value:
        return _KINDS[value[_OF_TELEGRAM]].de_json(value["json"])
    return value


def _name_of(callback: Callable[..., Any]) -> str:
    """The path by which another process finds the step. Raises ValueError if there is none."""
    name = getattr(callback, "__qualname__", type(callback).__name__)
    owner = getattr(callback, "__self__", None)
    paths = [f"{callback.__module__}:{name}"]
    if owner is not None and not isinstance(owner, type):
        paths = [f"{path}.{callback.__name__}" for path in _paths_of(owner)]
    for path in paths:
        if "<" not in path and found_at(path) == callback:
            return path
    raise ValueError(
        f"{name} of {callback.__module__} cannot be a next step, because another process could not find it: use a "
        "function of a module, or a method of an object that is a global variable of a module"
    )


def _paths_of(owner: object) -> Iterator[str]:
    """The path of a module's global variable that holds the object, if there is one."""
    if found_at(_paths.get(id(owner), ":")) is owner:
        yield _paths[id(owner)]
        return
    for name, module in list(sys.modules.items()):
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if value is owner:
                _paths[id(owner)] = f"{name}:{attribute}"
                yield _paths[id(owner)]
                return


def _step(name: str) -> Any:
    """Raises LookupError."""
    found = found_at(name)
    if found is None:
        raise LookupError(f"the next step {name}, which an earlier message registered, no longer exists in this bot")
    return found


def load(chat_id: int | None, name: str) -> Any:
    """The stored value, or None. `chat_id` None: the update's chat. Raises the same as storage.load."""
    return _at(chat_id, lambda place: storage.load(place, f"telebot:{name}"))


def keep(chat_id: int | None, name: str, value: Any) -> None:
    """Store a value; None deletes it. Raises the same as storage.keep."""
    _at(chat_id, lambda place: storage.keep(place, f"telebot:{name}", value))


def _at(chat_id: int | None, act: Callable[[storage.Place], Any]) -> Any:
    try:
        return act(chat_id)
    except UnsafeKeyError:
        # The keys that order this update are known only now; learning them before would have cost a round trip.
        ctx = current()
        own = (
            [session_key_of(ctx.update, kind).key for kind in ("topic", "user")]
            if chat_id in (None, ctx.chat_id)
            else []
        )
        place = next((key for key in own if key and storage.is_safe(key)), None)
        if place is None:
            raise
        return act(place)
