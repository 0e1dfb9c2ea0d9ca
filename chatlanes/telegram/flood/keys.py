"""Every Redis key of flood control, with its type. Each expires when what it says is over, but for the counts."""

from __future__ import annotations

from typing import NamedTuple

#: <bot id>; <bot id>:<scope>: string: paused until the key expires, after a 429. A scope is a chat, as it was named in
#: the call, or the method of a call without one
FLOOD = "flood:"
#: <bot id>: set: the scopes that were refused since a call was last accepted
REFUSED = "flood-refused:"
#: <bot id>: zset: what is paused (scopes, and WHOLE_BOT) -> until when, ms; for people to look at
WAITS = "flood-waits:"
#: <bot id>: hash: next (when the bot's next message is due), back (when the next of those that were sent away comes
#: back); <bot id>:<chat>: hash: chat, group (when its next message is due). µs
RATE = "flood-rate:"
#: <bot id>: hash: totals: refused (calls, with 429), waits (in their place), waited_ms
COUNTS = "flood-counts:"

#: A chat's name is Telegram's business; as a part of a key it has an end.
LONGEST_SCOPE = 64


#: Stands for the bot among the scopes.
WHOLE_BOT = "*"


class Keys(NamedTuple):
    """Of one call."""

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


#: Telegram waits 10 s for these, and somebody has paid: they are tried while the bot is paused, which is a guess.
URGENT = frozenset({"answerprecheckoutquery", "answershippingquery"})


def asked_of(keys: Keys, method: str) -> list[str]:
    """What a call of this method looks at: an urgent one only at the pause of its own method."""
    bot = keys.scope if method.lower() in URGENT else keys.bot
    return [bot, keys.scope, keys.refused, keys.bot_rate, keys.chat_rate, keys.counts]


def refused_of(keys: Keys) -> list[str]:
    """What a 429 changes."""
    return [keys.bot, keys.scope, keys.refused, keys.waits, keys.counts]


def scope_of(method: str, chat: int | str | None) -> str:
    """What a 429 for this call is about, as far as anybody can tell."""
    return (method if chat is None else str(chat)[:LONGEST_SCOPE]).lower()
