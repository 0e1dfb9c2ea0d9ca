"""`lanes metrics`: serves the counters in Redis to Prometheus.

A scrape reads a few keys, whatever the size of the backlog, and changes nothing, so any number of exporters may run.
While Redis does not answer, a scrape returns only lanes_redis_up 0.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import click
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from chatlanes.cli.command import CommandContext, CommandError, command
from chatlanes.cli.metric_families import families
from chatlanes.logs.process import say


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
