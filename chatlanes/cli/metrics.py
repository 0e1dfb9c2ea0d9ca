"""The additions of chatlanes to `lanes metrics`: backlog limits, pollers, floods and broadcasts."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from chatlanes.broadcasts import Broadcasts, Reason
from chatlanes.cli.check import leader_of
from chatlanes.cli.context import BotContext
from chatlanes.telegram.flood import flood_counts

#: The help of counters, where the settings and causes of bots say more.
COUNTERS = {
    "skipped": "Messages settled without a run (STALE, MAX_AGE).",
    "parked": "Messages parked without counting an attempt: Telegram's limits, a bot that no worker serves.",
    "held": "Messages held because they arrived before their predecessors (webhook).",
    "late": "Messages that arrived late: their successors had stopped waiting for them (webhook).",
    "collected": "Messages that joined a group: they have no run of their own (COLLECT).",
    "interrupted": "Runs that a newer message has ended (INTERRUPT).",
    "steered": "Updates that a run in progress has taken (INTERRUPT=steer).",
    "rate_dropped": "Updates over USER_RATE that were dropped.",
    "rate_delayed": "Updates over USER_RATE that wait for their turn.",
    "rate_marked": "Updates over USER_RATE that on_limited has answered.",
    "stopped": "Updates that a newer update has stopped (CONTROL).",
}


def families(lanes: BotContext) -> Iterator[Metric]:
    for each in (_limits, _pollers, _floods, _broadcasts):
        yield from each(lanes)


def _limits(lanes: BotContext) -> Iterator[Metric]:
    limit = GaugeMetricFamily(
        "lanes_backlog_limit", "The poller waits above this backlog (MAX_PENDING).", labels=["bot"]
    )
    for settings in lanes.bots():
        limit.add_metric([lanes.names[settings.queue_group]], settings.max_pending)
    yield limit


def _pollers(lanes: BotContext) -> Iterator[Metric]:
    """For the bots that are polled and whose tokens are known here, and together for the added ones (BOTS_KEY)."""
    leads = GaugeMetricFamily("lanes_poller_leading", "1 if a poller leads, otherwise 0.", labels=["bot"])
    for bot in lanes.bots():
        if bot.bot_token is not None and bot.webhook_url is None:
            leads.add_metric([lanes.names[bot.queue_group]], float(bool(leader_of(lanes, bot.bot_id))))
    settings = lanes.settings()
    if settings and settings.bots_key is not None and settings.webhook_url is None:
        leads.add_metric(["added"], float(bool(leader_of(lanes, "added"))))
    yield leads


def _floods(lanes: BotContext) -> Iterator[Metric]:
    """For the bots whose tokens are known here."""
    refused = CounterMetricFamily("lanes_flood_refused", "Calls that Telegram refused with 429.", labels=["bot"])
    waits = CounterMetricFamily(
        "lanes_flood_waits", "Calls that waited in place before they were sent.", labels=["bot"]
    )
    seconds = CounterMetricFamily(
        "lanes_flood_waits_seconds", "Seconds for which calls waited in place.", labels=["bot"]
    )
    for bot_id, bot in lanes.read_bot_ids().items():
        found = flood_counts(lanes.client, bot_id)
        refused.add_metric([bot], found.refused)
        waits.add_metric([bot], found.waits)
        seconds.add_metric([bot], found.waited_s)
    yield from (refused, waits, seconds)


def _broadcasts(lanes: BotContext) -> Iterator[Metric]:
    """The broadcasts that have not ended, of the bots whose tokens are known here."""
    labels = ["bot", "broadcast"]
    results = CounterMetricFamily(
        "lanes_broadcast_results", "Recipients of a broadcast, by result.", labels=[*labels, "result"]
    )
    left = GaugeMetricFamily("lanes_broadcast_left", "Recipients that have no result yet.", labels=labels)
    running = GaugeMetricFamily("lanes_broadcast_running", "1 if it runs, 0 if it is paused.", labels=labels)
    for bot_id, bot in lanes.read_bot_ids().items():
        for each in Broadcasts(lanes.client, bot_id).all():
            if each.ended_ms:
                continue
            for reason in Reason:
                results.add_metric([bot, each.id, reason.value], each.counts.get(reason.value, 0))
            left.add_metric([bot, each.id], each.total - each.done)
            running.add_metric([bot, each.id], float(each.state == "running"))
    yield from (results, left, running)
