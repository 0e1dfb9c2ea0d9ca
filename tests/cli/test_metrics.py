"""lanes metrics: the metrics that Prometheus scrapes, served over HTTP by the real command."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest

from celery_lanes.cli.metrics import COUNTERS, LanesCollector
from celery_lanes.protocol import NewMessage, keys
from chatlanes.broadcasts import Broadcasts, Call, Reason
from chatlanes.cli.commands import BotCommands
from chatlanes.cli.context import BotContext
from chatlanes.settings import Settings
from tests.cli.conftest import Cli
from tests.support import ROOT

pytestmark = pytest.mark.slow


def scraped(cli: Cli) -> dict[str, float]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LanesCollector(BotCommands(cli.app)))
    lines = generate_latest(registry).decode().splitlines()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))
    }


@pytest.fixture
def broadcasts(cli: Cli) -> Broadcasts:
    return Broadcasts(cli.store.client, 1)


def test_counters_and_gauges_have_their_values(cli: Cli) -> None:
    # Given updates in each state
    cli.bury("1:9", "1/chat:9")
    for number in range(3):
        cli.append(f"1:1{number}", "1/chat:7")
    cli.append("2:1", queue="help.0")
    cli.store.turn([], holder="w", lease_ms=1, room=0, settles=cli.take())
    cli.take()
    # Then the counters are right
    found = scraped(cli)
    assert (found["lanes_appended_total"], found["lanes_settled_total"], found["lanes_buried_total"]) == (5, 1, 1)
    assert found['lanes_queue_settled_total{bot="shop",queue="shop.0"}'] == 1
    assert found['lanes_queue_settled_total{bot="help",queue="help.0"}'] == 0
    # And the gauges too
    assert (found['lanes_backlog{bot="shop"}'], found['lanes_backlog{bot="help"}']) == (2, 1)
    assert (found["lanes_leased"], found["lanes_dead_letters"], found["lanes_delayed"]) == (1, 1, 0)
    assert found['lanes_ready{bot="help",queue="help.0"}'] == 1
    assert 0 < found['lanes_oldest_seconds{bot="shop"}'] < 600
    assert found["lanes_redis_up"] == 1


def test_timers_are_gauges(cli: Cli) -> None:
    for name in ("x", "y"):
        cli.store.schedule(NewMessage("1:timer:", "shop.0", b"{}", []), "1/chat:7", name, in_ms=600_000)
    cli.store.client.zincrby(keys.TIMERS, -660_000, "1/chat:7\ny")
    found = scraped(cli)
    assert (found["lanes_timers"], found["lanes_scheduled_total"]) == (2, 2)
    assert 60 <= found["lanes_timers_late_seconds"] < 600


def test_broadcasts_that_have_not_ended_have_metrics(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, broadcasts: Broadcasts
) -> None:
    # Given a broadcast that runs, one that is paused, and one that has ended
    monkeypatch.setattr(BotContext, "read_bot_ids", lambda _: {1: "shop"})
    for id_ in ("b1", "b2", "b3"):
        broadcasts.store(id_, Call("sendMessage", {"text": "hi"}), range(1, 11), 25.0)
        broadcasts.begin(broadcasts.progress(id_))
    cli.store.client.hset("broadcast:1:b1", mapping={"count:sent": 3, "count:never started": 1})
    broadcasts.set_state("b2", "paused", only_from=("running",))
    broadcasts.end(broadcasts.progress("b3"), "done", {})
    # Then the first two have metrics
    found = {name: value for name, value in scraped(cli).items() if name.startswith("lanes_broadcast")}
    b1, b2 = 'bot="shop",broadcast="b1"', 'bot="shop",broadcast="b2"'
    results = {f'lanes_broadcast_results_total{{{b},result="{each.value}"}}': 0 for b in (b1, b2) for each in Reason}
    assert found == results | {
        f'lanes_broadcast_results_total{{{b1},result="sent"}}': 3,
        f'lanes_broadcast_results_total{{{b1},result="never started"}}': 1,
        f"lanes_broadcast_left{{{b1}}}": 6,
        f"lanes_broadcast_left{{{b2}}}": 10,
        f"lanes_broadcast_running{{{b1}}}": 1,
        f"lanes_broadcast_running{{{b2}}}": 0,
    }


def test_redis_outage_is_a_gauge(cli: Cli) -> None:
    cli.app.conf.broker_url = "redis://127.0.0.1:1/0"
    assert scraped(cli) == {"lanes_redis_up": 0}


def test_every_counter_of_the_scripts_is_served() -> None:
    catalogue = re.search(r"#: hash: seq (.*?)\nCOUNTS", Path(keys.__file__).read_text(), re.DOTALL)
    assert catalogue
    assert set(re.findall(r"\b[a-z]+(?:_[a-z]+)*\b", catalogue[1].partition("totals")[2])) == set(COUNTERS)


def test_docs_list_the_served_metrics(cli: Cli, monkeypatch: pytest.MonkeyPatch, broadcasts: Broadcasts) -> None:
    # Given a bot with a token, a broadcast and a parked update
    broadcasts.store("b1", Call("sendMessage", {"text": "hi"}), [7], 25.0)
    broadcasts.begin(broadcasts.progress("b1"))
    monkeypatch.setattr(BotContext, "read_bot_ids", lambda _: {1: "shop"})
    settings = Settings(bot_token="1:A", _env_file=None)
    monkeypatch.setattr(BotContext, "bots", lambda _: (settings,))
    monkeypatch.setattr(BotContext, "names", {"shop": "shop", "help": "help", settings.queue_group: "updates"})
    cli.append("1:1", "1/chat:7")
    [taken] = cli.take()
    cli.store.park(*taken, delay_ms=60_000, kind="FloodWait", reason="why")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LanesCollector(BotCommands(cli.app)))
    # Then the docs list exactly these families, with their types and labels
    table = re.findall(
        r"^\| `(\w+)(?:\{([\w,]+)\})?` \| (\w+) \|", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE
    )
    documented = {
        name.removesuffix("_total"): (kind, set(filter(None, labels.split(",")))) for name, labels, kind in table
    }
    assert documented == {
        family.name: (family.type, {label for sample in family.samples for label in sample.labels} - {"le"})
        for family in registry.collect()
    }


@pytest.fixture
def served(redis_url: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "celery", "-A", "chatlanes", "lanes", "metrics", "--port", "0"]
    env = {**os.environ, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_command_serves_until_sigterm(served: subprocess.Popen[str]) -> None:
    assert served.stdout
    url = served.stdout.readline().removeprefix("metrics at ").strip()
    page = requests.get(url, timeout=30, proxies={"http": ""}).text
    assert 'lanes_backlog{bot="updates"} 0.0' in page
    served.send_signal(signal.SIGTERM)
    assert served.wait(60) == 0
