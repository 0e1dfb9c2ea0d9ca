"""What a framework stores for the chat of an update, written in the step that settles the update.

Guarantees that a failed attempt leaves it unchanged, and that a key which another update could write at the same time
is refused (UnsafeKeyError): with ORDER_BY=chat an update may store what belongs to its chat. It lasts as long as
sessions do, SESSION_TTL, and moves with them when a group becomes a supergroup.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from chatlanes.bot.adapters import storage_json
from chatlanes.bot.context import Context
from chatlanes.bot.current import current
from chatlanes.bot.session.keys import session_key_of
from chatlanes.bot.session.stored import Stored
from chatlanes.lanes.errors import LeaseLost

#: A chat, `user:<id>`, `bot`, or None: the update's own chat.
Place = int | str | None


class NoLaneError(Exception):
    """The update came through no lane, so that nothing can be kept with it."""


def is_safe(place: Place) -> bool:
    """Whether the update may keep something there. Raises as `load`."""
    ctx = current()
    return _stored(ctx).is_safe(_key(ctx, place, ""))


def fetch(wanted: Iterable[tuple[Place, str]]) -> None:
    """Read what will be loaded, in one round trip: what is loaded or kept of it afterwards asks nobody."""
    ctx = current()
    _stored(ctx).fetch(*_all_keys(ctx, wanted))


def read_ahead(wanted: Iterable[tuple[Place, str]]) -> None:
    """A guess of what will be fetched: from the handler's own thread it takes nobody else's. What could not be read is
    told where it is used. Raises ParkUpdate when Redis stays away.
    """
    with suppress(NoLaneError, LeaseLost):
        fetch(wanted)


def is_wanting(wanted: Iterable[tuple[Place, str]]) -> bool:
    """Whether `fetch` would ask Redis. Raises NoLaneError."""
    ctx = current()
    return _stored(ctx).is_wanting(*_all_keys(ctx, wanted))


def load(place: Place, name: str) -> Any:
    """What is kept there; None: nothing.

    Raises UnsafeKeyError, LeaseLost, NoLaneError, ParkUpdate, and LookupError for a class that is not there any more.
    """
    ctx = current()
    stored, (key, *moves_from) = _stored(ctx), _keys(ctx, place, name)
    for old in moves_from:
        stored.move(old, key)
    found = stored.load(key)
    return None if found is None else storage_json.value(found)


def keep(place: Place, name: str, value: Any, ttl_s: float | None = None) -> None:
    """None deletes. Kept for `ttl_s`, if that is less than SESSION_TTL. Raises TypeError for what is no JSON, and as
    `load`.
    """
    ctx = current()
    limits = [limit_s for limit_s in (ttl_s, ctx.session_plan.ttl_s) if limit_s is not None]
    content = None if value is None else storage_json.text(value, name).encode()
    _stored(ctx).stage(_key(ctx, place, name), content, min(limits, default=None))


def _stored(ctx: Context) -> Stored:
    if ctx.stored is None:
        raise NoLaneError("states are kept with an update that came through a lane; this one did not")
    return ctx.stored


def _is_own(ctx: Context, place: Place) -> bool:
    return place is None or place == ctx.chat_id


def _all_keys(ctx: Context, wanted: Iterable[tuple[Place, str]]) -> list[str]:
    return [key for place, name in wanted for key in _keys(ctx, place, name)]


def _keys(ctx: Context, place: Place, name: str) -> list[str]:
    """Its key, and the one that it moves from."""
    moves_from = session_key_of(ctx.update, "chat").moves_from if _is_own(ctx, place) else None
    return [_key(ctx, place, name), *([f"{moves_from}/{name}"] if moves_from else [])]


def _key(ctx: Context, place: Place, name: str) -> str:
    """Under the key that the update is ordered by where it is about the update's own chat."""
    if isinstance(place, str):
        return f"{place}/{name}"
    own = session_key_of(ctx.update, "chat").key
    return f"{own if own and _is_own(ctx, place) else f'chat:{place}'}/{name}"
