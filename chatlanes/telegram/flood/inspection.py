"""A bot's current flood pauses and its flood-control counters, for display. The gate does not use them."""

from __future__ import annotations

from typing import Any, NamedTuple

from redis import Redis

from celery_lanes.monitoring.inspection import now_us
from chatlanes.telegram.flood.keys import COUNTS, WAITS, WHOLE_BOT, keys_of


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
