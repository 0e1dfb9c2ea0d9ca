"""Webhook: how fast the receiver answers, beside an app that only answers, and beside one apply_async for each request.

The receiver has one processor of the machine, who sends to it another; Redis takes its share of both. Of the disorder:
the simulator's way to the webhook swaps kinds, 500 updates a second come of people who write and press buttons, and
nobody works on them: what stands in the lanes in the end is looked at.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import orjson
import requests
from redis import Redis

from bench import simulator
from bench.figures import Goal, Result, Side, percentile
from bench.pace import until
from bench.rounds import alternate
from bench.scale import CHATS
from bench.stage import ROOT, BenchFailedError, Stage, emptied
from bench.updates import make_update
from poller.webhook.door import secret_from
from sandbox.ports import HOST, free_port
from sandbox.simulator import Simulator
from sandbox.simulator.webhook import SECRET_HEADER
from tasks.lanes import keys

#: of the requests/s of an app that does nothing
GOAL = Goal("ratio", "at least", 0.3)
PATH = "/hook"
SECRET = secret_from(simulator.TOKEN)
#: Telegram's own number of connections.
CONNECTIONS = 40
#: updates/s, and how much later than meant a request is sent at most.
RATE, JITTER_S = 500, 0.03
#: In each, somebody writes and presses a button right after: Telegram sends these two through different queues.
TALKING = 50
#: WEBHOOK_REORDER
USUAL_MS = 100


def run(stage: Stage) -> list[Result]:
    return [*_answers(stage), *_order(stage)]


# -- how fast it answers


def _answers(stage: Stage) -> list[Result]:
    with stage.server("webhook") as url:
        sides = {name: Answering(stage, url, name) for name in ("lanes", "bare", "stock")}
        measured = alternate(stage.scale.rounds, {name: side.measure for name, side in sides.items()})
    ours, bare, stock = (Side(name, measured[name]) for name in ("lanes", "bare", "stock"))
    p99 = {name: Side(name, side.p99_ms) for name, side in sides.items()}
    case = f"{CONNECTIONS} connections"
    return [
        Result("webhook", f"{case}, beside an app that only answers", "requests/s", ours, bare, GOAL),
        Result("webhook", f"{case}, beside one apply_async per request", "requests/s", ours, stock),
        Result("webhook", f"{case}, answer's p99, beside one apply_async", "ms", p99["lanes"], p99["stock"]),
    ]


class Answering:
    """One side: a program that answers. A round is a fresh one of it, on an empty Redis."""

    def __init__(self, stage: Stage, url: str, name: str) -> None:
        self._stage, self._url, self._name = stage, url, name
        self.p99_ms: list[float] = []

    def measure(self) -> float:
        """Requests per second."""
        port, count = free_port(), self._stage.scale.hooks[self._name]
        place = f"http://{HOST}:{port}{PATH}"
        settings = receiver_settings(self._url, port)
        own = ("poller", "webhook") if self._name == "lanes" else ("bench.hooks", self._name, str(port), self._url)
        with (
            emptied(self._url),
            self._stage.child(f"{self._name}-hook", "bench.pinned", "0", *own, **settings) as child,
        ):
            until(lambda: _answers_at(place), [child], f"{self._name} listens")
            told = _send(place, count)
        self.p99_ms.append(told["p99_ms"])
        self._stage.tell(f"webhook {self._name}, {count}: {told['rate']:,.0f}/s, p99 {told['p99_ms']:.1f} ms")
        return float(told["rate"])


def receiver_settings(url: str, port: int) -> dict[str, str]:
    return {
        "BOT_TOKEN": simulator.TOKEN,
        "REDIS_URL": url,
        "WEBHOOK_URL": f"http://{HOST}:{port}{PATH}",
        "WEBHOOK_PORT": str(port),
        "MAX_PENDING": "1000000",
    }


def _answers_at(place: str) -> bool:
    try:
        requests.get(place, timeout=10)
    except requests.ConnectionError:
        return False
    return True


def _send(place: str, count: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.pinned", "1", "bench.posting", "--url", place, "--secret", SECRET]
    command += ["--count", str(count), "--chats", str(CHATS), "--connections", str(CONNECTIONS)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT)
    if ran.returncode:
        raise BenchFailedError(f"sending to {place}: {ran.stderr.strip()[-500:]}")
    told: dict[str, Any] = orjson.loads(ran.stdout)
    if set(told["statuses"]) != {"200"}:
        raise BenchFailedError(f"sending to {place}: answered with {told['statuses']}")
    return told


# -- in which order updates stand then


@dataclass(frozen=True)
class Stood:
    """What a round came to: of 1,000 updates so many stand behind a higher id of their chat; and the ms from the moment
    Telegram sent one to that at which it stood in its lane.
    """

    swapped: float
    median_ms: float
    p99_ms: float


def _order(stage: Stage) -> list[Result]:
    with stage.server("order") as url, simulator.start() as telegram:
        in_order = _ways(stage, url, telegram, jitter_s=0.0)
        swapped = _ways(stage, url, telegram, jitter_s=JITTER_S)
    orderly, disorderly = f"{RATE}/s, sent in order", f"{RATE}/s, kinds swapped by up to {JITTER_S * 1000:g} ms"
    return [
        _held_against(f"{orderly}, sent to in its lane, median", "ms", in_order, lambda each: each.median_ms),
        _held_against(f"{orderly}, sent to in its lane, p99", "ms", in_order, lambda each: each.p99_ms),
        _held_against(f"{disorderly}, behind a higher id", "of 1,000", swapped, lambda each: each.swapped),
        _held_against(f"{disorderly}, sent to in its lane, p99", "ms", swapped, lambda each: each.p99_ms),
    ]


def _held_against(case: str, unit: str, stood: dict[int, list[Stood]], of: Callable[[Stood], float]) -> Result:
    ours, without = ([of(each) for each in stood[reorder_ms]] for reorder_ms in (USUAL_MS, 0))
    return Result("webhook order", case, unit, Side("lanes", ours), Side("WEBHOOK_REORDER=0", without))


def _ways(stage: Stage, url: str, telegram: Simulator, jitter_s: float) -> dict[int, list[Stood]]:
    """WEBHOOK_REORDER -> its rounds."""
    stood: dict[int, list[Stood]] = {USUAL_MS: [], 0: []}
    for seed in range(stage.scale.rounds):
        for reorder_ms, rounds in stood.items():
            rounds.append(_stand(stage, url, telegram, reorder_ms, jitter_s, seed))
    return stood


def _stand(stage: Stage, url: str, telegram: Simulator, reorder_ms: int, jitter_s: float, seed: int) -> Stood:
    port, count = free_port(), stage.scale.ordered
    settings = {**receiver_settings(url, port), "WEBHOOK_REORDER": str(reorder_ms)}
    place = settings["WEBHOOK_URL"]
    with emptied(url) as client, stage.child("receiver", "poller", "webhook", **settings) as child:
        until(lambda: _answers_at(place), [child], "the receiver listens")
        # Before the first one nothing was seen, and it would be held.
        requests.post(place, json=make_update(0, 1), headers={SECRET_HEADER: SECRET}, timeout=30).raise_for_status()
        telegram.reset()
        telegram.disturb(jitter_s=jitter_s, seed=seed)
        said = {"url": place, "secret_token": SECRET, "max_connections": CONNECTIONS}
        requests.post(f"{telegram.url}/bot{telegram.token}/setWebhook", json=said, timeout=30).raise_for_status()
        telegram.stream(chats=TALKING, rate=RATE, total=count, seed=seed)
        until(lambda: telegram.stats()["confirmed"] == count, [child], f"{count} updates are delivered")
        until(lambda: not client.exists(keys.HELD), [child], "nothing is held")
        stood = _look(client)
    stage.tell(
        f"{jitter_s * 1000:g} ms of disorder, WEBHOOK_REORDER={reorder_ms}: {stood.swapped:.1f} of 1,000 swapped, "
        f"{stood.median_ms:.1f} ms, p99 {stood.p99_ms:.1f} ms"
    )
    return stood


def _look(client: Redis) -> Stood:
    swapped, waits_ms = 0, []
    for lane in client.scan_iter(f"{keys.LANE}*", count=1000):
        highest = 0
        standing: list[tuple[bytes, float]] = client.zrange(lane, 0, -1, withscores=True)  # type: ignore[assignment]
        for member, place_us in standing:
            message_id = member.decode()
            if not (number := int(message_id.rpartition(":")[2])):
                continue
            swapped += number < highest
            highest = max(highest, number)
            waits_ms.append(place_us / 1000 - _sent_at_s(client, message_id) * 1000)
    return Stood(1000 * swapped / len(waits_ms), median(waits_ms), percentile(waits_ms, 99))


def _sent_at_s(client: Redis, message_id: str) -> float:
    """By the clock of the machine, which is Redis' too."""
    stored: bytes = client.get(keys.body(message_id))  # type: ignore[assignment]
    return float(orjson.loads(stored.partition(b"\n")[2])[0][0]["answered_at"])
