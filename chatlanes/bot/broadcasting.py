"""ctx.broadcast: starts a broadcast with the step that settles the update.

Guarantees that the broadcast starts if and only if the update is settled by this run, and that a later run of the same
update starts the same one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

from redis import Redis

from celery_lanes.runtime.threads import run_blocking
from chatlanes.bot.stored import SESSION, Stored
from chatlanes.broadcasts import Broadcasts, Call, RecipientsError, checked_rate, feed_again, is_chat_id
from chatlanes.settings import Settings
from chatlanes.settings.imports import import_object

#: `ctx.broadcast` for a larger number of chats would hold up the handler; the command reads a file of any length.
MOST_RECIPIENTS = 1_000_000


def start_broadcast(
    settings: Settings,
    stored: Stored,
    to: Iterable[int] | Literal["sessions"],
    method: str | None,
    handler: str | None,
    rate: float | None,
    paid: bool,
    params: dict[str, Any],
) -> str:
    """Store the broadcast, and stage its start. Returns its id."""
    call = _call(method, handler, {**params, **({"allow_paid_broadcast": True} if paid and method else {})})
    per_s, bot_id = checked_rate(rate or settings.broadcast_rate, paid=paid), settings.bot_id
    chats = stored.ask(lambda store: session_chats(store.client, bot_id)) if to == "sessions" else _chats(to)
    if len(chats) > MOST_RECIPIENTS:
        raise RecipientsError(f"a broadcast to {len(chats):,} chats: give at most {MOST_RECIPIENTS:,}")
    id_ = f"{stored.message_id.partition(':')[2].replace(':', '-')}-{next(stored.numbers)}"
    stored.ask(lambda store: Broadcasts(store.client, bot_id).store(id_, call, chats, per_s))
    stored.stage_timer(feed_again(settings, id_, 0))
    return id_


def _chats(to: Iterable[int]) -> list[int]:
    """The chat ids, without repeated ones. Raises RecipientsError."""
    try:
        chats: dict[Any, None] = dict.fromkeys([to] if isinstance(to, str | bytes) else to)
    except TypeError:
        raise _wrong(to) from None
    for chat in chats:
        if not is_chat_id(chat):
            raise _wrong(chat)
    return list(chats)


def _wrong(given: object) -> RecipientsError:
    return RecipientsError(f"a broadcast to {given!r:.80}: give chat ids, such as [123456], or 'sessions'")


def _call(method: str | None, handler: str | None, params: dict[str, Any]) -> Call:
    if bool(method) == bool(handler) or (handler and params):
        raise TypeError("ctx.broadcast: give a method with its parameters, or handler='module:function'")
    if handler:
        import_object("handler", handler)
        return Call(handler=handler)
    return Call.of_method(str(method), params)


#: The owner of a session begins with a chat, or with a user, whose private chat has the same id.
_OWNER = re.compile(r"(?:chat|user|topic):(-?[0-9]{1,18})(?![0-9])")


def session_chats(client: Redis, bot_id: int) -> list[int]:
    """The chats that have a session, in no particular order. Scans all keys of the database."""
    prefix = f"{SESSION}{bot_id}/"
    found = run_blocking(lambda: list(client.scan_iter(f"{prefix}*", count=1000)))
    owners = (_OWNER.match(key.decode(errors="replace").removeprefix(prefix)) for key in found)
    return list(dict.fromkeys(int(owner.group(1)) for owner in owners if owner))
