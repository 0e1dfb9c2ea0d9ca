"""Every Redis key of flood control, with its type. Each expires when its content is outdated, except the counts."""

from __future__ import annotations

from typing import NamedTuple

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


#: Answers to payments, for which Telegram waits only 10 s. They are sent even while the bot is paused, because the
#: pause of a whole bot is a guess.
URGENT = frozenset({"answerprecheckoutquery", "answershippingquery"})


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
