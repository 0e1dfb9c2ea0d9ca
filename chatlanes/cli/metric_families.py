"""The metrics for Prometheus: names, labels and meanings (docs/metrics.md lists them).

Each metric reads a few keys, independent of the backlog, and changes nothing. Counters start with 0, so that their
first increase is visible.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from chatlanes.cli.command import CommandContext
from chatlanes.cli.health_checks import leader_of
from chatlanes.lanes.leases.timings import RECOVERY, RUN, WAIT
from chatlanes.lanes.monitoring import inspection
from chatlanes.lanes.monitoring.histogram import Histogram
from chatlanes.lanes.protocol import keys
from chatlanes.lanes.protocol.server import durability

#: As chatlanes/lanes/protocol/keys.py has them, with what they mean.
COUNTERS = {
    "appended": "Messages that came in.",
    "seen": "Messages that came again and were dropped.",
    "handed_out": "Hand-outs to workers.",
    "settled": "Messages that were finished.",
    "skipped": "Of those, settled without a run (STALE).",
    "released": "Given back untouched: deploys, reconnects, more than there were free slots.",
    "retried": "Failed attempts that are tried again.",
    "parked": "Put off without an attempt counted: Telegram's limits, a bot that no worker knows.",
    "buried": "Moved to the dead letters.",
    "replayed": "Put back out of the dead letters.",
    "dropped": "Thrown out of the dead letters.",
    "expired": "Leases that ran out: workers that died or froze.",
    "refused": "What a worker said after it had lost its lease: changed nothing.",
    "repaired": "Keys that did not agree with their messages and were mended.",
    "held": "Came before their predecessors by webhook, and were held.",
    "late": "Came after their successors had gone on.",
    "uncertain": "Calls that a dead worker left without an outcome.",
    "answered": "Calls that the journal answered with what an earlier run was answered: they were not made again.",
}

TIMES = {
    WAIT: "From the append, or the replay, of a message until its handler started for the first time.",
    RUN: "From the start of a handler until its end, whatever came of it.",
    RECOVERY: "From the last sign of life of a worker that died until the handler of what it had started again.",
}


def families(lanes: CommandContext) -> Iterator[Metric]:
    """All of them, but for whether Redis answers. Raises RedisError."""
    counted = (_totals, _settled, _lost, _parks, _floods, _times)
    now = (_backlogs, _queues, _sizes, _workers, _pollers, _server)
    for each in (*counted, *now):
        yield from each(lanes)


# -- what is counted


def _totals(lanes: CommandContext) -> Iterator[Metric]:
    counts = inspection.counts(lanes.client)
    for name, means in COUNTERS.items():
        yield CounterMetricFamily(f"lanes_{name}", means, value=counts.get(name, 0))


def _settled(lanes: CommandContext) -> Iterator[Metric]:
    by_queue = CounterMetricFamily("lanes_queue_settled", "Messages that were finished.", labels=["bot", "queue"])
    settled = inspection.settled(lanes.client).by_queue
    for group, queue in lanes.queues:
        by_queue.add_metric([lanes.names[group], queue], settled.get(queue, 0))
    yield by_queue


def _lost(lanes: CommandContext) -> Iterator[Metric]:
    lost = CounterMetricFamily("lanes_lost_runs", "Runs that lost their lease before they had ended.", labels=["bot"])
    for group, bot in lanes.names.items():
        lost.add_metric([bot], inspection.lost_runs(lanes.client, group))
    yield lost


def _parks(lanes: CommandContext) -> Iterator[Metric]:
    """Kinds are there when they have happened."""
    labels = ["bot", "kind"]
    parks = CounterMetricFamily("lanes_parks", "Messages put off without an attempt counted, by why.", labels=labels)
    seconds = CounterMetricFamily("lanes_parks_seconds", "For how long they were put off.", labels=labels)
    for (kind, group), (times, together_s) in sorted(inspection.parked(lanes.client).items()):
        named = [lanes.names.get(group, group), kind]
        parks.add_metric(named, times)
        seconds.add_metric(named, together_s)
    yield from (parks, seconds)


def _floods(lanes: CommandContext) -> Iterator[Metric]:
    """Of the bots whose tokens are here."""
    refused = CounterMetricFamily("lanes_flood_refused", "Calls that Telegram refused with 429.", labels=["bot"])
    waits = CounterMetricFamily("lanes_flood_waits", "Waits of a call in its place before it was made.", labels=["bot"])
    seconds = CounterMetricFamily("lanes_flood_waits_seconds", "For how long calls waited so.", labels=["bot"])
    if lanes.bot_ids:
        from chatlanes.telegram.flood import (
            flood_counts,  # an app that is not ours has no bots, and need not load them
        )

        for bot_id, bot in lanes.bot_ids.items():
            found = flood_counts(lanes.client, bot_id)
            refused.add_metric([bot], found.refused)
            waits.add_metric([bot], found.waits)
            seconds.add_metric([bot], found.waited_s)
    yield from (refused, waits, seconds)


def _times(lanes: CommandContext) -> Iterator[Metric]:
    found = inspection.times(lanes.client)
    groups = sorted({*lanes.names, *(group for _, group in found)})
    for what, means in TIMES.items():
        family = HistogramMetricFamily(f"lanes_{what}_seconds", means, labels=["bot"])
        for group in groups:
            histogram = found.get((what, group), Histogram())
            family.add_metric([lanes.names.get(group, group)], list(histogram.cumulative()), histogram.sum_s)
        yield family


# -- what there is now


def _backlogs(lanes: CommandContext) -> Iterator[Metric]:
    """For each bot: what MAX_PENDING is held against, and how long the oldest one has been there."""
    backlog = GaugeMetricFamily("lanes_backlog", "Messages that are not settled or buried.", labels=["bot"])
    limit = GaugeMetricFamily("lanes_backlog_limit", "Above it the poller waits (MAX_PENDING).", labels=["bot"])
    oldest = GaugeMetricFamily("lanes_oldest_seconds", "Since the oldest of them came; 0: none.", labels=["bot"])
    now_us = inspection.now_us(lanes.client)
    for group, bot in lanes.names.items():
        backlog.add_metric([bot], lanes.store.pending(group))
        came_us = inspection.oldest_us(lanes.client, group)
        oldest.add_metric([bot], 0.0 if came_us is None else max(now_us - came_us, 0) / 1e6)
    for settings in lanes.bots():
        limit.add_metric([lanes.names[settings.queue_group]], settings.max_pending)
    yield from (backlog, limit, oldest)


def _queues(lanes: CommandContext) -> Iterator[Metric]:
    ready = GaugeMetricFamily("lanes_ready", "Messages that a worker may take now.", labels=["bot", "queue"])
    for group, queue in lanes.queues:
        ready.add_metric([lanes.names[group], queue], int(lanes.client.llen(queue)))
    yield ready


def _sizes(lanes: CommandContext) -> Iterator[Metric]:
    for name, key, means in (
        ("leased", keys.LEASES, "Messages in the hands of workers."),
        ("delayed", keys.DELAYED, "Messages that were put off, and come back by themselves."),
        ("dead_letters", keys.DEAD, "Messages in the dead letters now."),
    ):
        yield GaugeMetricFamily(f"lanes_{name}", means, value=int(lanes.client.zcard(key)))
    yield GaugeMetricFamily(
        "lanes_losses",
        "Times that Redis lost what it held, and nobody has acknowledged it.",
        value=len(inspection.losses(lanes.client)),
    )
    yield GaugeMetricFamily(
        "lanes_paused", "Lanes, queues and bots that are paused.", value=lanes.client.hlen(keys.PAUSED)
    )


# -- who works


def _workers(lanes: CommandContext) -> Iterator[Metric]:
    slots = inspection.workers(lanes.client).values()
    yield GaugeMetricFamily("lanes_workers", "Workers that gave a sign of life within a lease.", value=len(slots))
    yield GaugeMetricFamily("lanes_slots", "How many messages they run at once.", value=sum(slots))


def _pollers(lanes: CommandContext) -> Iterator[Metric]:
    """Of the bots that are polled, and whose tokens are here."""
    leads = GaugeMetricFamily("lanes_poller_leading", "Whether a poller leads; 0: nobody polls.", labels=["bot"])
    for bot in lanes.bots():
        if bot.bot_token is not None and bot.webhook_url is None:
            leads.add_metric([lanes.names[bot.queue_group]], float(bool(leader_of(lanes, bot.bot_id))))
    yield leads


def _server(lanes: CommandContext) -> Iterator[Metric]:
    safe = durability(lanes.client).safe
    yield GaugeMetricFamily("lanes_durable", "Whether what Redis was told survives its end.", value=float(safe))
