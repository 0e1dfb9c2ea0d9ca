"""Added bots: what one poller with 1,000 of them costs, against a poller with the same bots in the file BOTS.

Started is the time from the start of the process until the long poll of the last bot has begun. Connections are those
to Redis; each bot has one more, to Telegram. Each poller has its own server; the Bot API is
bench/load/many_bots.py.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

import psutil

from bench.load.many_bots import control
from bench.measure.backlog_rate import until
from bench.measure.figures import Goal, Result, Side
from bench.measure.harness import BenchProcess, Harness, emptied
from bench.measure.usage import memory_mb
from chatlanes.settings import load
from chatlanes.updates.added_bots import BotRecord, Registry, new_key, now_ms

#: MB, connections, threads; and seconds until the last of the bots is polled, and until one more is.
GOALS = {"memory": 150, "connections": 30, "threads": 1_020, "started": 10, "added": 5}
UNITS = {"memory": "MB", "connections": "connections", "threads": "threads", "started": "s", "added": "s"}


@dataclass
class Measured:
    """A poller; each figure has one value per round."""

    name: str
    figures: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in GOALS})

    def side(self, name: str) -> Side:
        return Side(self.name, self.figures[name])


def run(harness: Harness) -> list[Result]:
    count = harness.scale.added_bots
    added, file = Measured("lanes"), Measured("BOTS")
    for _ in range(harness.scale.added_rounds):
        measure(harness, added, count, is_added=True)
        measure(harness, file, count, is_added=False)
    return [
        Result(
            "added bots",
            f"{count:,} bots, {name}",
            UNITS[name],
            added.side(name),
            file.side(name) if file.figures[name] else None,
            Goal("value", "at most", goal),
        )
        for name, goal in GOALS.items()
    ]


def measure(harness: Harness, measured: Measured, count: int, *, is_added: bool) -> None:
    with ExitStack() as stack:
        url = stack.enter_context(harness.server(f"added-{measured.name}"))
        client = stack.enter_context(emptied(url))
        command = [sys.executable, "-m", "bench.load.many_bots", "0"]
        api = stack.enter_context(harness.foreign("many-bots", command))
        until(lambda: api.has_printed("http://"), [api], "the Bot API is ready")
        address = api.log.read_text().strip()
        settings = {"BOT_API_URL": address, "REDIS_URL": url}
        settings |= _added(settings, count) if is_added else _in_file(harness, count)
        began_s = time.monotonic()
        poller = stack.enter_context(
            harness.foreign("poller", [sys.executable, "-m", "chatlanes.poller", "-q"], **settings)
        )
        _until_polled(address, count, poller)
        found = measured.figures
        found["started"].append(time.monotonic() - began_s)
        found["memory"].append(memory_mb(poller.pid))
        found["threads"].append(psutil.Process(poller.pid).num_threads())
        found["connections"].append(len(client.client_list()) - 1)
        if is_added:
            began_s = time.monotonic()
            _add(settings, range(count + 1, count + 2))
            _until_polled(address, count + 1, poller)
            found["added"].append(time.monotonic() - began_s)
        harness.report(f"{measured.name}: { ({name: values[-1:] for name, values in found.items()}) }")


def _until_polled(address: str, count: int, poller: BenchProcess) -> None:
    def is_done() -> bool:
        return sum(int(polling) for _, polling, _ in control(address, "state").values()) >= count

    until(is_done, [poller], f"{count} bots are polled")


def _added(settings: dict[str, str], count: int) -> dict[str, str]:
    more = {"BOTS_KEY": new_key()}
    _add(settings | more, range(1, count + 1))
    return more


def _add(settings: dict[str, str], numbers: range) -> None:
    """As `chatlanes.bots.add`, without asking Telegram."""
    with closing(Registry.connect(load(settings, None))) as registry:
        for number in numbers:
            bot = BotRecord(registry.seals.seal(_token(number)), "bench.apps.bot:do_nothing", f"bot{number}", now_ms())
            registry.put(number, bot)


def _in_file(harness: Harness, count: int) -> dict[str, str]:
    file = harness.directory / "bots.toml"
    file.write_text("".join(f'[b{number}]\ntoken_env = "TOKEN{number}"\n' for number in range(1, count + 1)))
    return {"BOTS": str(file), **{f"TOKEN{number}": _token(number) for number in range(1, count + 1)}}


def _token(number: int) -> str:
    return f"{number}:SECRET-of-bot-{number}"
