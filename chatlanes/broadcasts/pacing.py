"""How many recipients a broadcast feeds now. Pure.

Guarantees that no more are pending than are reached in WINDOW_S, so that few chats wait behind a broadcast, and that
the rate is not exceeded in any longer time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

#: Recipients of this time may be pending. A second, because a call takes less, even when Telegram is slow.
WINDOW_S = 1.0
#: After a 429 the rate is halved, at most this often, and doubled again after a while without one.
MOST_HALVINGS = 4
RECOVERS_AFTER_S = 30.0
#: Live calls wait for a slot of RATE_PER_BOT: nothing is fed meanwhile.
BUSY_S = 0.2
#: No call waits for a slot for this long. A later one was taken before the clock of Redis was set back.
LATEST_SLOT_S = 120.0

#: Without `allow_paid_broadcast` Telegram accepts about this many messages a second from a bot.
MOST_UNPAID = 30.0


class RateError(Exception):
    """The rate is not allowed. The text says what to do."""


def checked_rate(rate: float, *, paid: bool) -> float:
    """Raises RateError for a rate that Telegram would refuse."""
    if rate > MOST_UNPAID and not paid:
        raise RateError(
            f"a rate of {rate:g} per second must be paid (--paid, paid=True): above {MOST_UNPAID:g}, Telegram refuses "
            "messages without allow_paid_broadcast, for which it charges Stars"
        )
    return rate


class FeedPace(NamedTuple):
    """The state of the pace. `fed_us`: the time up to which recipients are fed. `slow`: how often the rate is halved,
    `slow_us`: since when. `refused`: the calls of the bot that were refused with 429, in all.
    """

    fed_us: int
    slow: int = 0
    slow_us: int = 0
    refused: int = 0


class Flood(NamedTuple):
    """The flood control of the bot: ms until its pause ends, µs until its next free slot, calls refused in all."""

    paused_ms: int
    slot_us: int
    refused: int


def next_feed(now_us: int, pace: FeedPace, rate: float, pending: int, flood: Flood) -> tuple[int, FeedPace]:
    """How many recipients to feed, and the pace after that."""
    pace = _adapted(now_us, pace, flood)
    rate /= 2**pace.slow
    if flood.paused_ms > 0 or BUSY_S * 1e6 < flood.slot_us < LATEST_SLOT_S * 1e6:
        return 0, pace._replace(fed_us=now_us)
    from_us = max(min(pace.fed_us, now_us), now_us - round(max(WINDOW_S, 2 / rate) * 1e6))
    due = math.floor((now_us - from_us) * rate / 1e6 + 1e-6)
    count = max(0, min(due, max(1, math.ceil(rate * WINDOW_S)) - pending))
    return count, pace._replace(fed_us=from_us + round(count / rate * 1e6))


def _adapted(now_us: int, pace: FeedPace, flood: Flood) -> FeedPace:
    if flood.refused > pace.refused:
        return pace._replace(slow=min(pace.slow + 1, MOST_HALVINGS), slow_us=now_us, refused=flood.refused)
    if pace.slow and not 0 <= now_us - pace.slow_us <= RECOVERS_AFTER_S * 1e6:
        return pace._replace(slow=pace.slow - 1, slow_us=now_us)
    return pace._replace(refused=flood.refused)
