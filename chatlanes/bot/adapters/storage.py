"""Stores a framework's data for the chat of an update, in the step that settles the update.

A failed attempt leaves the data unchanged, and a key that another update could write at the same time is refused
(UnsafeKeyError): with ORDER_BY=chat an update may store data of its own chat. Like sessions, the data expires after
SESSION_TTL and moves along when a group becomes a supergroup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from celery_lanes.errors import LeaseLost
from chatlanes.bot.adapters import storage_json
from chatlanes.bot.context import Context, current
from chatlanes.bot.event_loop import blocking_executor
from chatlanes.bot.session import session_key_of
from chatlanes.bot.stored import Stored

#: The place that a value belongs to: a chat, `user:<id>`, `bot`, or None for the chat of the update.
Place = int | str | None


class NoLaneError(Exception):
    """The update has no lane, so no data can be stored with it."""


def is_safe(place: Place) -> bool:
    """True if the update may store data there. Raises the same as `load`."""
    ctx = current()
    return _stored(ctx).is_safe(_key(ctx, place, ""))


def fetch(wanted: Iterable[tuple[Place, str]]) -> None:
    """Read these values in one round trip. `load` and `keep` of them then need none."""
    ctx = current()
    _stored(ctx).fetch(*_all_keys(ctx, wanted))


def read_ahead(wanted: Iterable[tuple[Place, str]]) -> None:
    """Fetch values that will probably be needed, on the handler's own thread. Other errors are raised when the values
    are used. Raises ParkUpdate if Redis stays unavailable.
    """
    with suppress(NoLaneError, LeaseLost):
        fetch(wanted)


async def fetch_soon(wanted: Iterable[tuple[Place, str]]) -> None:
    """Like `fetch`, on another thread if a round trip is needed."""
    ctx, wanted = current(), list(wanted)
    if _stored(ctx).is_unread(*_all_keys(ctx, wanted)):
        await blocking_executor().call(partial(fetch, wanted))


def first_safe(places: Sequence[Place], default: Place) -> Place:
    """The first place where the update may store data."""
    return next(filter(is_safe, places), default)


def load(place: Place, name: str) -> Any:
    """The stored value, or None.

    Raises UnsafeKeyError, LeaseLost, NoLaneError, ParkUpdate, and LookupError for a class that no longer exists.
    """
    ctx = current()
    stored, (key, *moves_from) = _stored(ctx), _keys(ctx, place, name)
    for old in moves_from:
        stored.move(old, key)
    found = stored.load(key)
    return None if found is None else storage_json.value(found)


def keep(place: Place, name: str, value: Any, ttl_s: float | None = None, at_least_s: float = 0.0) -> None:
    """Store a value for `ttl_s` or SESSION_TTL, whichever is shorter, and for `at_least_s`; None deletes it.
    Raises TypeError for a value that cannot be encoded, and the same as `load`.
    """
    ctx = current()
    limits = [max(limit_s, at_least_s) for limit_s in (ttl_s, ctx.plan.session_ttl_s) if limit_s is not None]
    content = None if value is None else storage_json.text(value, name).encode()
    _stored(ctx).stage(_key(ctx, place, name), content, min(limits, default=None))


def expires() -> bool:
    """True with SESSION_TTL. What belongs together is then stored together, so that it expires together."""
    return current().plan.session_ttl_s is not None


def _stored(ctx: Context) -> Stored:
    if ctx.stored is None:
        raise NoLaneError("this update has no lane, so no states can be stored with it")
    return ctx.stored


def _is_own(ctx: Context, place: Place) -> bool:
    return place is None or place == ctx.chat_id


def _all_keys(ctx: Context, wanted: Iterable[tuple[Place, str]]) -> list[str]:
    return [key for place, name in wanted for key in _keys(ctx, place, name)]


def _keys(ctx: Context, place: Place, name: str) -> list[str]:
    """The key of a value, and the key it moves from, if any."""
    moves_from = session_key_of(ctx.update, "chat").moves_from if _is_own(ctx, place) else None
    return [_key(ctx, place, name), *([f"{moves_from}/{name}"] if moves_from else [])]


def _key(ctx: Context, place: Place, name: str) -> str:
    """The key of a value. Data of the update's own chat uses the key that orders the update."""
    if isinstance(place, str):
        return f"{place}/{name}"
    own = session_key_of(ctx.update, "chat").key
    return f"{own if own and _is_own(ctx, place) else f'chat:{place}'}/{name}"
