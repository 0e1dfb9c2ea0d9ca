"""What a framework keeps for the chat of an update: JSON, written in the step that settles the update.

Promises that a failed attempt leaves it as it was, and that what another update could write at the same time is refused
(UnsafeKeyError): with ORDER_BY=chat an update keeps what is its chat's.
"""

from __future__ import annotations

import json
from typing import Any

from tasks.bot.context import Context
from tasks.bot.current import current
from tasks.bot.session_key import place_of
from tasks.bot.stored import Stored

#: The only key of a dict that has others than texts: JSON would make texts of them. Its value are pairs.
_PAIRS = "\0pairs"


class NoLaneError(Exception):
    """The update came through no lane, so that nothing can be kept with it."""


def is_safe(place: int | str | None) -> bool:
    """Whether the update may keep something there. Raises as `load`."""
    ctx = current()
    return _stored(ctx).is_safe(_key(ctx, place, ""))


def load(place: int | str | None, name: str) -> Any:
    """What is kept there; None: nothing. `place` is a chat, `user:<id>`, or None: the update's own chat.

    Raises UnsafeKeyError, LeaseLost, NoLaneError and RedisError.
    """
    ctx = current()
    found = _stored(ctx).load(_key(ctx, place, name))
    return None if found is None else json.loads(found, object_hook=_with_its_keys)


def keep(place: int | str | None, name: str, value: Any) -> None:
    """None deletes. Raises TypeError for what is no JSON, and as `load`."""
    ctx = current()
    _stored(ctx).stage(_key(ctx, place, name), None if value is None else text(value).encode())


def text(value: Any) -> str:
    """As it is kept, in its order. Raises TypeError for what is no JSON, but for the keys of a dict, which may
    be numbers, True, False and None too: a user's id is a key that bots use.
    """
    return json.dumps(_as_json(value))


def _stored(ctx: Context) -> Stored:
    if ctx.stored is None:
        raise NoLaneError("states are kept with an update that came through a lane; this one did not")
    return ctx.stored


def _key(ctx: Context, place: int | str | None, name: str) -> str:
    """Under the key that the update is ordered by where it is about the update's own chat."""
    if isinstance(place, str) and place.startswith("user:"):
        return f"{place}/{name}"
    own = place_of(ctx.update, "chat").key
    return f"{own if own and place in (None, ctx.chat_id) else f'chat:{place}'}/{name}"


def _as_json(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_as_json(each) for each in value]
    if not isinstance(value, dict):
        return value
    for key in value:
        if not isinstance(key, str | int | float | bool | None):
            raise TypeError(f"the key {key!r} cannot be kept: write a text or a number")
    if all(isinstance(key, str) for key in value):
        return {key: _as_json(inner) for key, inner in value.items()}
    return {_PAIRS: [[key, _as_json(inner)] for key, inner in value.items()]}


def _with_its_keys(found: dict[str, Any]) -> dict[Any, Any]:
    return dict(found[_PAIRS]) if _PAIRS in found else found
