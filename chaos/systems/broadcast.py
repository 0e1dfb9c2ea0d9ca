"""The broadcast of a chaos run: one message for each of many chats, of which some have updates meanwhile."""

from __future__ import annotations

from redis import Redis

from chatlanes.broadcasts import Broadcasts, Call, Feeder
from chatlanes.lanes.protocol.store import Store
from chatlanes.settings import Settings

#: The setting that has the number of recipients; it is read by chaos only.
RECIPIENTS = "CHAOS_BROADCAST"
ID, BOT_ID = "chaos", 1
#: The text of its messages.
TEXT = "news"
RATE = 25.0


def start(client: Redis, token: str, recipients: int) -> None:
    feeder = Feeder(Store(client), Settings(bot_token=token))  # type: ignore[arg-type]
    feeder.broadcasts.store(ID, Call("sendMessage", {"text": TEXT}), range(1, recipients + 1), RATE)
    feeder.start(ID)


def unreached(client: Redis) -> int:
    """How many recipients have no result yet."""
    return sum(each.total - each.done for each in Broadcasts(client, BOT_ID).all())


def results(client: Redis) -> tuple[dict[str, int], dict[int, str]]:
    """The number of each result, and the reason of each chat that was not reached."""
    broadcasts = Broadcasts(client, BOT_ID)
    missed = {chat: reason for chat, reason, _ in broadcasts.missed(ID)}
    return next((each.counts for each in broadcasts.all()), {}), missed
