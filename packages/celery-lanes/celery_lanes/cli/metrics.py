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

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError:  # `metrics` says so
    Collector = object  # type: ignore[assignment,misc]
    CollectorRegistry = None  # type: ignore[assignment,misc]
from redis.exceptions import RedisError

from celery_lanes.cli.context import CommandError, Context, command
from celery_lanes.cli.formatting import address
from celery_lanes.leases import RECOVERY, RUN, WAIT
from celery_lanes.monitoring import inspection
from celery_lanes.monitoring.inspection import Histogram
from celery_lanes.protocol import durability, keys

#: The counters of celery_lanes/protocol/keys.py, with their meanings.
COUNTERS = {
    "appended": "Messages appended.",
    "seen": "Duplicate messages that were dropped.",
    "handed_out": "Messages handed to workers.",
    "settled": "Messages settled.",
    "skipped": "Messages settled without a run.",
    "released": "Messages released untouched: deploys, reconnects, more than there were free slots.",
    "retried": "Failed attempts that are retried.",
    "parked": "Messages parked without counting an attempt.",
    "buried": "Messages moved to the dead letters.",
    "replayed": "Messages replayed from the dead letters.",
    "dropped": "Messages deleted from the dead letters.",
    "expired": "Leases that expired because their worker died or froze.",
    "refused": "Commands of workers that had lost the lease, which changed nothing.",
    "repaired": "Keys that were inconsistent with their messages and were repaired.",
    "held": "Messages held because they arrived before their predecessors.",
    "late": "Messages that arrived late: their successors had stopped waiting for them.",
    "collected": "Messages that joined a group: they have no run of their own.",
    "interrupted": "Runs that a newer message has ended.",
    "stopped": "Messages that a newer message has stopped.",
    "steered": "Messages that a run in progress has taken.",
    "gated": "Messages that had to wait for a permit of a limit.",
    "rate_dropped": "Messages over their rate that were dropped.",
    "rate_delayed": "Messages over their rate that wait for their turn.",
    "rate_marked": "Messages over their rate that were marked, for their runs to answer.",
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

    def __init__(self, lanes: Context) -> None:
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
def metrics(lanes: Context, host: str, port: int) -> None:
    """Serve counters, backlogs and ages to Prometheus until SIGTERM or SIGINT."""
    if CollectorRegistry is None:
        raise CommandError("prometheus_client is not installed: pip install celery-lanes[metrics]")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LanesCollector(lanes))
    # Blocked before the server starts its threads, so that none of them receives these signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    server = _serve(host, port, registry)
    lanes.say(f"metrics at http://{address(host, server.server_port)}/metrics")
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    server.shutdown()


def _serve(host: str, port: int, registry: CollectorRegistry) -> Any:
    try:
        server, _ = start_http_server(port, host, registry)
    except (OSError, UnicodeError) as error:  # UnicodeError: not a name of a host
        reason = getattr(error, "strerror", None) or error
        raise CommandError(f"cannot listen on {address(host, port)}: {reason}; set --host or --port") from None
    return server


def families(lanes: Context) -> Iterator[Metric]:
    """All metrics except lanes_redis_up. Raises RedisError."""
    counted = (_totals, _settled, _lost, _parks, _times)
    current = (_backlogs, _queues, _sizes, _workers, _server)
    for each in (*counted, *current):
        yield from each(lanes)
    yield from lanes.metrics()


# -- counters


def _totals(lanes: Context) -> Iterator[Metric]:
    counts = inspection.counts(lanes.client)
    for name, means in COUNTERS.items():
        yield CounterMetricFamily(f"lanes_{name}", lanes.counters.get(name, means), value=counts.get(name, 0))


def _settled(lanes: Context) -> Iterator[Metric]:
    by_queue = CounterMetricFamily("lanes_queue_settled", "Messages settled.", labels=[lanes.words.group, "queue"])
    settled = inspection.settled(lanes.client).by_queue
    for group, queue in lanes.queues:
        by_queue.add_metric([lanes.names[group], queue], settled.get(queue, 0))
    yield by_queue


def _lost(lanes: Context) -> Iterator[Metric]:
    lost = CounterMetricFamily(
        "lanes_lost_runs", "Runs that lost their lease before they ended.", labels=[lanes.words.group]
    )
    for group, name in lanes.names.items():
        lost.add_metric([name], inspection.lost_runs(lanes.client, group))
    yield lost


def _parks(lanes: Context) -> Iterator[Metric]:
    """A kind appears once it has occurred."""
    labels = [lanes.words.group, "kind"]
    parks = CounterMetricFamily("lanes_parks", "Messages parked without counting an attempt, by reason.", labels=labels)
    seconds = CounterMetricFamily("lanes_parks_seconds", "Seconds for which they were parked.", labels=labels)
    for (kind, group), (times, together_s) in sorted(inspection.parked(lanes.client).items()):
        named = [lanes.names.get(group, group), kind]
        parks.add_metric(named, times)
        seconds.add_metric(named, together_s)
    yield from (parks, seconds)


def _times(lanes: Context) -> Iterator[Metric]:
    found = inspection.times(lanes.client)
    groups = sorted({*lanes.names, *(group for _, group in found)})
    for what, means in TIMES.items():
        family = HistogramMetricFamily(f"lanes_{what}_seconds", means, labels=[lanes.words.group])
        for group in groups:
            histogram = found.get((what, group), Histogram())
            family.add_metric([lanes.names.get(group, group)], list(histogram.cumulative()), histogram.sum_s)
        yield family


# -- gauges


def _backlogs(lanes: Context) -> Iterator[Metric]:
    """Per group: the backlog, and the age of its oldest message."""
    backlog = GaugeMetricFamily(
        "lanes_backlog", "Messages that are neither settled nor buried.", labels=[lanes.words.group]
    )
    oldest = GaugeMetricFamily(
        "lanes_oldest_seconds", "Age of the oldest message in the backlog; 0: none.", labels=[lanes.words.group]
    )
    now_us = inspection.now_us(lanes.client)
    for group, name in lanes.names.items():
        backlog.add_metric([name], lanes.store.pending(group))
        came_us = inspection.oldest_us(lanes.client, group)
        oldest.add_metric([name], 0.0 if came_us is None else max(now_us - came_us, 0) / 1e6)
    yield from (backlog, oldest)


def _queues(lanes: Context) -> Iterator[Metric]:
    ready = GaugeMetricFamily(
        "lanes_ready", "Messages that a worker may fetch now.", labels=[lanes.words.group, "queue"]
    )
    for group, queue in lanes.queues:
        ready.add_metric([lanes.names[group], queue], int(lanes.client.llen(queue)))
    yield ready


def _sizes(lanes: Context) -> Iterator[Metric]:
    for name, key, means in (
        ("leased", keys.LEASES, "Messages leased to workers."),
        ("delayed", keys.DELAYED, "Messages that wait for a retry or are parked."),
        ("collecting", keys.COLLECTING, "Groups that wait for further messages, and messages over their rate."),
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
        "lanes_paused", f"Lanes, queues and {lanes.words.group}s that are paused.", value=lanes.client.hlen(keys.PAUSED)
    )


# -- processes


def _workers(lanes: Context) -> Iterator[Metric]:
    slots = inspection.workers(lanes.client).values()
    yield GaugeMetricFamily("lanes_workers", "Workers with a heartbeat within the lease time.", value=len(slots))
    yield GaugeMetricFamily("lanes_slots", "Messages that these workers can run at once.", value=sum(slots))


def _server(lanes: Context) -> Iterator[Metric]:
    safe = durability(lanes.client).safe
    yield GaugeMetricFamily("lanes_durable", "1 if acknowledged writes survive a crash of Redis.", value=float(safe))
