"""`lanes metrics`: serves the counters in Redis to Prometheus. docs/metrics.md lists the metrics.

A scrape reads a few keys, whatever the size of the backlog, and changes nothing, so any number of exporters may run.
While Redis does not answer, a scrape returns only lanes_redis_up 0. Counters start at 0, so that their first increase
is visible.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import click
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from chatlanes.cli.check import leader_of
from chatlanes.cli.command import CommandContext, CommandError, command
from chatlanes.lanes.leases.timings import RECOVERY, RUN, WAIT
from chatlanes.lanes.monitoring import inspection
from chatlanes.lanes.monitoring.histogram import Histogram
from chatlanes.lanes.protocol import keys
from chatlanes.lanes.protocol.server import durability
from chatlanes.logs.process import say

#: The counters of chatlanes/lanes/protocol/keys.py, with their meanings.
COUNTERS = {
    "appended": "Messages appended.",
    "seen": "Duplicate messages that were dropped.",
    "handed_out": "Messages handed to workers.",
    "settled": "Messages settled.",
    "skipped": "Messages settled without a run (STALE).",
    "released": "Messages released untouched: deploys, reconnects, more than there were free slots.",
    "retried": "Failed attempts that are retried.",
    "parked": "Messages parked without counting an attempt: Telegram's limits, a bot that no worker serves.",
    "buried": "Messages moved to the dead letters.",
    "replayed": "Messages replayed from the dead letters.",
    "dropped": "Messages deleted from the dead letters.",
    "expired": "Leases that expired because their worker died or froze.",
    "refused": "Commands of workers that had lost the lease, which changed nothing.",
    "repaired": "Keys that were inconsistent with their messages and were repaired.",
    "held": "Messages held because they arrived before their predecessors (webhook).",
    "late": "Messages that arrived late: their successors had stopped waiting for them (webhook).",
    "collected": "Messages that joined a group: they have no run of their own (COLLECT).",
    "interrupted": "Runs that a newer message has ended (INTERRUPT).",
    "scheduled": "Timers set or moved.",
    "cancelled": "Timers removed before they were due.",
    "fired": "Timers that were due: their messages are counted as appended.",
    "uncertain": "Calls that a dead worker left without an outcome.",
    "answered": "Calls that were not repeated, because the journal had the outcome of an earlier run.",
}

TIMES = {
    WAIT: "From the append or replay of a message until its handler started for the first time.",
    RUN: "From the start of a handler until its end, whatever its outcome.",
    RECOVERY: "From the last heartbeat of a dead worker until the handlers of its messages started again.",
}


class LanesCollector(Collector):
    """Reads the metrics from Redis at each scrape."""

    def __init__(self, lanes: CommandContext) -> None:
        self._lanes = lanes

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("lanes_redis_up", "1 if Redis answers, otherwise 0.")
        try:
            found = list(families(self._lanes))
        except RedisError:
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield from (up, *found)


@command("metrics")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65_535), default=9808, show_default=True, help="0: any free port.")
def metrics(lanes: CommandContext, host: str, port: int) -> None:
    """Serve counters, backlogs and ages to Prometheus until SIGTERM or SIGINT."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LanesCollector(lanes))
    # Blocked before the server starts its threads, so that none of them receives these signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    server = _serve(host, port, registry)
    echo(lanes, f"metrics at http://{host}:{server.server_port}/metrics")
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    server.shutdown()


def echo(lanes: CommandContext, sentence: str) -> None:
    """Print in the format that LOG_FORMAT sets; other apps than chatlanes do not have this setting."""
    settings = lanes.settings()
    if settings is not None and settings.log_format == "json":
        say(settings, sentence)
    else:
        click.echo(sentence)


def _serve(host: str, port: int, registry: CollectorRegistry) -> Any:
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        raise CommandError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    return server


def families(lanes: CommandContext) -> Iterator[Metric]:
    """All metrics except lanes_redis_up. Raises RedisError."""
    counted = (_totals, _settled, _lost, _parks, _floods, _times, _broadcasts)
    current = (_backlogs, _queues, _sizes, _workers, _pollers, _server)
    for each in (*counted, *current):
        yield from each(lanes)


# -- counters


def _totals(lanes: CommandContext) -> Iterator[Metric]:
    counts = inspection.counts(lanes.client)
    for name, means in COUNTERS.items():
        yield CounterMetricFamily(f"lanes_{name}", means, value=counts.get(name, 0))


def _settled(lanes: CommandContext) -> Iterator[Metric]:
    by_queue = CounterMetricFamily("lanes_queue_settled", "Messages settled.", labels=["bot", "queue"])
    settled = inspection.settled(lanes.client).by_queue
    for group, queue in lanes.queues:
        by_queue.add_metric([lanes.names[group], queue], settled.get(queue, 0))
    yield by_queue


def _lost(lanes: CommandContext) -> Iterator[Metric]:
    lost = CounterMetricFamily("lanes_lost_runs", "Runs that lost their lease before they ended.", labels=["bot"])
    for group, bot in lanes.names.items():
        lost.add_metric([bot], inspection.lost_runs(lanes.client, group))
    yield lost


def _parks(lanes: CommandContext) -> Iterator[Metric]:
    """A kind appears once it has occurred."""
    labels = ["bot", "kind"]
    parks = CounterMetricFamily("lanes_parks", "Messages parked without counting an attempt, by reason.", labels=labels)
    seconds = CounterMetricFamily("lanes_parks_seconds", "Seconds for which they were parked.", labels=labels)
    for (kind, group), (times, together_s) in sorted(inspection.parked(lanes.client).items()):
        named = [lanes.names.get(group, group), kind]
        parks.add_metric(named, times)
        seconds.add_metric(named, together_s)
    yield from (parks, seconds)


def _floods(lanes: CommandContext) -> Iterator[Metric]:
    """For the bots whose tokens are known here."""
    refused = CounterMetricFamily("lanes_flood_refused", "Calls that Telegram refused with 429.", labels=["bot"])
    waits = CounterMetricFamily(
        "lanes_flood_waits", "Calls that waited in place before they were sent.", labels=["bot"]
    )
    seconds = CounterMetricFamily(
        "lanes_flood_waits_seconds", "Seconds for which calls waited in place.", labels=["bot"]
    )
    if lanes.bot_ids:
        # Imported only if there are bots, so that other apps need not load it.
        from chatlanes.telegram.flood import flood_counts

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


def _broadcasts(lanes: CommandContext) -> Iterator[Metric]:
    """The broadcasts that have not ended, of the bots whose tokens are known here."""
    labels = ["bot", "broadcast"]
    results = CounterMetricFamily(
        "lanes_broadcast_results", "Recipients of a broadcast, by result.", labels=[*labels, "result"]
    )
    left = GaugeMetricFamily("lanes_broadcast_left", "Recipients that have no result yet.", labels=labels)
    running = GaugeMetricFamily("lanes_broadcast_running", "1 if it runs, 0 if it is paused.", labels=labels)
    if lanes.bot_ids:
        # Imported only if there are bots, so that other apps need not load it.
        from chatlanes.broadcasts import Broadcasts, Reason

        for bot_id, bot in lanes.bot_ids.items():
            for each in Broadcasts(lanes.client, bot_id).all():
                if each.ended_ms:
                    continue
                for reason in Reason:
                    results.add_metric([bot, each.id, reason.value], each.counts.get(reason.value, 0))
                left.add_metric([bot, each.id], each.total - each.done)
                running.add_metric([bot, each.id], float(each.state == "running"))
    yield from (results, left, running)


# -- gauges


def _backlogs(lanes: CommandContext) -> Iterator[Metric]:
    """Per bot: the backlog, which MAX_PENDING limits, and the age of its oldest message."""
    backlog = GaugeMetricFamily("lanes_backlog", "Messages that are neither settled nor buried.", labels=["bot"])
    limit = GaugeMetricFamily(
        "lanes_backlog_limit", "The poller waits above this backlog (MAX_PENDING).", labels=["bot"]
    )
    oldest = GaugeMetricFamily(
        "lanes_oldest_seconds", "Age of the oldest message in the backlog; 0: none.", labels=["bot"]
    )
    now_us = inspection.now_us(lanes.client)
    for group, bot in lanes.names.items():
        backlog.add_metric([bot], lanes.store.pending(group))
        came_us = inspection.oldest_us(lanes.client, group)
        oldest.add_metric([bot], 0.0 if came_us is None else max(now_us - came_us, 0) / 1e6)
    for settings in lanes.bots():
        limit.add_metric([lanes.names[settings.queue_group]], settings.max_pending)
    yield from (backlog, limit, oldest)


def _queues(lanes: CommandContext) -> Iterator[Metric]:
    ready = GaugeMetricFamily("lanes_ready", "Messages that a worker may fetch now.", labels=["bot", "queue"])
    for group, queue in lanes.queues:
        ready.add_metric([lanes.names[group], queue], int(lanes.client.llen(queue)))
    yield ready


def _sizes(lanes: CommandContext) -> Iterator[Metric]:
    for name, key, means in (
        ("leased", keys.LEASES, "Messages leased to workers."),
        ("delayed", keys.DELAYED, "Messages that wait for a retry or are parked."),
        ("collecting", keys.COLLECTING, "Groups that wait for further messages (COLLECT)."),
        ("dead_letters", keys.DEAD, "Messages in the dead letters."),
    ):
        yield GaugeMetricFamily(f"lanes_{name}", means, value=int(lanes.client.zcard(key)))
    timers = inspection.timers(lanes.client)
    yield GaugeMetricFamily("lanes_timers", "Timers that are not due yet, or late.", value=timers.waiting)
    yield GaugeMetricFamily(
        "lanes_timers_late_seconds",
        "Age of the oldest timer that is due and has not fired; 0: none.",
        value=timers.late_s,
    )
    yield GaugeMetricFamily(
        "lanes_losses",
        "Losses of data in Redis that are not acknowledged.",
        value=len(inspection.losses(lanes.client)),
    )
    yield GaugeMetricFamily(
        "lanes_paused", "Lanes, queues and bots that are paused.", value=lanes.client.hlen(keys.PAUSED)
    )


# -- processes


def _workers(lanes: CommandContext) -> Iterator[Metric]:
    slots = inspection.workers(lanes.client).values()
    yield GaugeMetricFamily("lanes_workers", "Workers with a heartbeat within the lease time.", value=len(slots))
    yield GaugeMetricFamily("lanes_slots", "Messages that these workers can run at once.", value=sum(slots))


def _pollers(lanes: CommandContext) -> Iterator[Metric]:
    """For the bots that are polled and whose tokens are known here."""
    leads = GaugeMetricFamily("lanes_poller_leading", "1 if a poller leads, otherwise 0.", labels=["bot"])
    for bot in lanes.bots():
        if bot.bot_token is not None and bot.webhook_url is None:
            leads.add_metric([lanes.names[bot.queue_group]], float(bool(leader_of(lanes, bot.bot_id))))
    yield leads


def _server(lanes: CommandContext) -> Iterator[Metric]:
    safe = durability(lanes.client).safe
    yield GaugeMetricFamily("lanes_durable", "1 if acknowledged writes survive a crash of Redis.", value=float(safe))
