"""Every Redis key of flood control, with its type. Each expires when its content is outdated, except the counts.

Also reads the pauses and the counts for display; the gate does not use that.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from redis import Redis

from celery_lanes.monitoring.inspection import now_us

#: <bot id>; <bot id>:<scope>: string: paused until the key expires, after a 429; its value is how long, in ms (1:
#: unknown). A scope is a chat, as named in the call, or the method of a call without a chat
FLOOD = "flood:"
#: <bot id>: set: the scopes that were refused since a call was last accepted
REFUSED = "flood-refused:"
#: <bot id>: zset: paused scopes (and WHOLE_BOT) -> end of the pause, ms; for display only
WAITS = "flood-waits:"
#: <bot id>: hash: next (when the bot's next message is due), back (when the next parked update may come back);
#: <bot id>:<chat>: hash: chat, group (when its next message is due); both: at (when one was last written). µs
RATE = "flood-rate:"
#: <bot id>:<chat>: string: a stream has edited its message in this chat; expires when the next edit is due
EDITED = "flood-edited:"
#: <bot id>: hash: totals: refused (calls, with 429), waits (in place), waited_ms
COUNTS = "flood-counts:"

#: Limits the length of a key: a chat's name comes from the caller and may have any length.
LONGEST_SCOPE = 64


#: The scope that means the whole bot.
WHOLE_BOT = "*"


class Keys(NamedTuple):
    """The keys of one call."""

    bot: str
    scope: str
    refused: str
    waits: str
    counts: str
    bot_rate: str
    chat_rate: str


def keys_of(bot_id: str, scope: str) -> Keys:
    return Keys(
        bot=FLOOD + bot_id,
        scope=f"{FLOOD}{bot_id}:{scope}",
        refused=REFUSED + bot_id,
        waits=WAITS + bot_id,
        counts=COUNTS + bot_id,
        bot_rate=RATE + bot_id,
        chat_rate=f"{RATE}{bot_id}:{scope}",
    )


#: Answers to payments and to queries of requests to join, for which Telegram waits only 10 s. They are sent even while
#: the bot is paused, because the pause of a whole bot is a guess.
URGENT = frozenset(
    {"answerprecheckoutquery", "answershippingquery", "answerchatjoinrequestquery", "sendchatjoinrequestwebapp"}
)


def ask_keys(keys: Keys, method: str) -> list[str]:
    """The keys of the script `ask`. For an urgent method the pause of the bot is not checked, only its own."""
    bot = keys.scope if method.lower() in URGENT else keys.bot
    return [bot, keys.scope, keys.refused, keys.bot_rate, keys.chat_rate, keys.counts]


def refused_keys(keys: Keys) -> list[str]:
    """The keys of the script `refused`."""
    return [keys.bot, keys.scope, keys.refused, keys.waits, keys.counts]


def scope_of(method: str, chat: int | str | None) -> str:
    """The scope that a 429 for this call pauses. Telegram does not name it, so this is a guess."""
    return (method if chat is None else str(chat)[:LONGEST_SCOPE]).lower()


# -- for display


class FloodPause(NamedTuple):
    """`what` is paused: `the bot`, `chat 7`, or a method."""

    what: str
    left_s: float


def flood_pauses(client: Redis, bot_id: int) -> list[FloodPause]:
    """The pauses that have neither expired nor been lifted, the shortest first."""
    now_ms = now_us(client) / 1000
    waits: Any = client.zrangebyscore(f"{WAITS}{bot_id}", now_ms, "+inf", withscores=True)
    found = [(scope.decode(), (until_ms - now_ms) / 1000) for scope, until_ms in waits]
    return [FloodPause(_named(scope), left_s) for scope, left_s in found if client.exists(_key(str(bot_id), scope))]


class FloodCounts(NamedTuple):
    """The totals of a bot: calls refused with 429, waits of calls in place, and the duration of these waits."""

    refused: int
    waits: int
    waited_s: float


def flood_counts(client: Redis, bot_id: int) -> FloodCounts:
    refused, waits, waited_ms = client.hmget(f"{COUNTS}{bot_id}", "refused", "waits", "waited_ms")
    return FloodCounts(int(refused or 0), int(waits or 0), int(waited_ms or 0) / 1000)


def _key(bot_id: str, scope: str) -> str:
    keys = keys_of(bot_id, scope)
    return keys.bot if scope == WHOLE_BOT else keys.scope


def _named(scope: str) -> str:
    if scope == WHOLE_BOT:
        return "the bot"
    return scope if scope.isalpha() else f"chat {scope}"
