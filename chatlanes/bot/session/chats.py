"""The chats that have a session, for broadcasts."""

from __future__ import annotations

import re

from redis import Redis

from chatlanes.bot.session.stored import SESSION
from chatlanes.lanes.runtime.blocking import run_blocking

#: The owner of a session begins with a chat, or with a user, whose private chat has the same id.
_OWNER = re.compile(r"(?:chat|user|topic):(-?[0-9]{1,18})(?![0-9])")


def session_chats(client: Redis, bot_id: int) -> list[int]:
    """The chats that have a session, in no particular order. Scans all keys of the database."""
    prefix = f"{SESSION}{bot_id}/"
    found = run_blocking(lambda: list(client.scan_iter(f"{prefix}*", count=1000)))
    owners = (_OWNER.match(key.decode(errors="replace").removeprefix(prefix)) for key in found)
    return list(dict.fromkeys(int(owner.group(1)) for owner in owners if owner))
