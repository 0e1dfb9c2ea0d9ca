"""Which updates come too late: Telegram has given up waiting for what would answer them. Pure.

Promises nothing about how old an update is at Telegram: those of the kinds below have no date, so that their age is
counted from when they were appended. What a poller that was away fetches late looks new.
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
