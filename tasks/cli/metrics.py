"""`lanes metrics`: serves what Redis counts to Prometheus.

Promises that each scrape reads a few keys, however much waits, and that none changes anything: any number of these may
run, and none has to. Counters are kept by the scripts and live in Redis; that Redis is away is a gauge too.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import click
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from tasks.cli.command import Lanes, Told, command
from tasks.lanes import keys, looking
from tasks.logs.process import say

#: As tasks/lanes/keys.py has them, with what they mean.
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


class LanesCollector(Collector):
    """One scrape is one look."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def collect(self) -> Iterator[Metric]:
        try:
            found = [*self._counters(), *self._backlogs(), *self._sizes()]
        except RedisError:
            yield GaugeMetricFamily("lanes_redis_up", "Whether Redis answers.", value=0)
            return
        yield GaugeMetricFamily("lanes_redis_up", "Whether Redis answers.", value=1)
        yield from found

    def _counters(self) -> Iterator[Metric]:
        counts = looking.counts(self._lanes.client)
        for name, means in COUNTERS.items():
            yield CounterMetricFamily(f"lanes_{name}", means, value=counts.get(name, 0))
        by_queue = CounterMetricFamily("lanes_queue_settled", "Messages that were finished.", labels=["bot", "queue"])
        settled = looking.settled(self._lanes.client).by_queue
        for group, queue in self._lanes.queues:
            by_queue.add_metric([self._lanes.names[group], queue], settled.get(queue, 0))
        yield by_queue

    def _backlogs(self) -> Iterator[Metric]:
        """For each bot: what MAX_PENDING is held against, and how long the oldest one has been there."""
        backlog = GaugeMetricFamily("lanes_backlog", "Messages that are not settled or buried.", labels=["bot"])
        oldest = GaugeMetricFamily("lanes_oldest_seconds", "Since the oldest of them came; 0: none.", labels=["bot"])
        now_us = looking.now_us(self._lanes.client)
        for group, bot in self._lanes.names.items():
            backlog.add_metric([bot], self._lanes.store.pending(group))
            came_us = looking.oldest_us(self._lanes.client, group)
            oldest.add_metric([bot], 0.0 if came_us is None else max(now_us - came_us, 0) / 1e6)
        yield from (backlog, oldest)

    def _sizes(self) -> Iterator[Metric]:
        client = self._lanes.client
        ready = GaugeMetricFamily("lanes_ready", "Messages that a worker may take now.", labels=["bot", "queue"])
        for group, queue in self._lanes.queues:
            ready.add_metric([self._lanes.names[group], queue], int(client.llen(queue)))
        yield ready
        for name, key, means in (
            ("leased", keys.LEASES, "Messages in the hands of workers."),
            ("delayed", keys.DELAYED, "Messages that were put off, and come back by themselves."),
            ("dead_letters", keys.DEAD, "Messages in the dead letters now."),
        ):
            yield GaugeMetricFamily(f"lanes_{name}", means, value=int(client.zcard(key)))
        yield GaugeMetricFamily(
            "lanes_paused", "Lanes, queues and bots that are paused.", value=client.hlen(keys.PAUSED)
        )


@command("metrics")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65_535), default=9808, show_default=True, help="0 takes a free one.")
def metrics(lanes: Lanes, host: str, port: int) -> None:
    """Serve counters, backlogs and ages to Prometheus, until it is told to stop."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LanesCollector(lanes))
    # Before the server's threads are there, so that none of them is chosen to hear of it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    server = _serve(host, port, registry)
    tell(lanes, f"metrics at http://{host}:{server.server_port}/metrics")
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    server.shutdown()


def tell(lanes: Lanes, sentence: str) -> None:
    """As LOG_FORMAT wants it; an app that is not ours has no such setting."""
    ours = lanes.settings()
    if ours is not None and ours.log_format == "json":
        say(ours, sentence)
    else:
        click.echo(sentence)


def _serve(host: str, port: int, registry: CollectorRegistry) -> Any:
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        raise Told(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    return server
