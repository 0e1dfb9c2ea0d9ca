"""TeleBot's next steps (register_next_step_handler, register_for_reply), stored with the update.

Any worker finds the step for the next message of the chat. A step is stored by name, so it must be a function of a
module, or a method of an object that a module holds; anything else is refused when it is registered. Arguments may be
JSON values, messages and callback queries.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from telebot import types
from telebot.handler_backends import HandlerBackend

from chatlanes.bot.adapters.telebot.storage import keep, load

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
        if "<" not in path and _found(path) == callback:
            return path
    raise ValueError(
        f"{name} of {callback.__module__} cannot be a next step, because another process could not find it: use a "
        "function of a module, or a method of an object that is a global variable of a module"
    )


def _paths_of(owner: object) -> Iterator[str]:
    """The path of a module's global variable that holds the object, if there is one."""
    if _found(_paths.get(id(owner), ":")) is owner:
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
    found = _found(name)
    if found is None:
        raise LookupError(f"the next step {name}, which an earlier message registered, no longer exists in this bot")
    return found


def _found(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found
