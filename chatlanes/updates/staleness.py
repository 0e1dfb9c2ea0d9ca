"""Which updates come too late: Telegram has given up waiting for what would answer them. Pure.

Promises that what is younger than its kind's life, counted from its append, is never called stale. Those kinds have no
date, so that one which waited at Telegram first is older than it looks: by at most its life again, for Telegram keeps
none for longer.
"""

from __future__ import annotations

#: How long Telegram's Bot API server keeps an update of a kind, seconds (its source, 10.0); all others a day. An answer
#: to an older one is refused ("query is too old").
LIFE_S = {
    "inline_query": 30.0,
    "callback_query": 150.0,
    "shipping_query": 150.0,
    "pre_checkout_query": 150.0,
    "chosen_inline_result": 600.0,
}


def is_stale(kind: str, age_s: float) -> bool:
    return age_s > LIFE_S.get(kind, float("inf"))
