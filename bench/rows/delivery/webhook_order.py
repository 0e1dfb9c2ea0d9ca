"""Webhook order: the order of updates in their lanes when webhook requests arrive out of order, and their delay.

The simulator delays updates of some kinds, so that kinds arrive swapped. 500 updates a second come from people who
write and press buttons; no worker runs, and the lanes are inspected at the end. The comparison is WEBHOOK_REORDER=0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median

import orjson
import requests
from redis import Redis

from bench.apps.receiver import CONNECTIONS, SECRET, answers_at, receiver_settings
from bench.load import simulator
from bench.load.updates import make_update
from bench.measure.backlog_rate import until
from bench.measure.figures import Result, Side, percentile
from bench.measure.harness import BenchProcess, Harness, emptied
from celery_lanes.embedded_server import free_port
from celery_lanes.protocol import keys
from chatlanes_sandbox.simulator import Simulator
from chatlanes_sandbox.simulator.webhook import SECRET_HEADER

#: updates/s, and the maximum delay of a request.
RATE, JITTER_S = 500, 0.03
#: Number of chats. In each, a message is followed by a button press: Telegram sends these two through different queues.
TALKING = 50
#: WEBHOOK_REORDER
USUAL_MS = 100


@dataclass(frozen=True)
class LaneOrder:
    """The result of a round: updates per 1,000 that are in their lane behind a higher id of the same chat; and the ms
    from Telegram's request to the place in the lane.
    """

    swapped: float
    median_ms: float
    p99_ms: float


#: (WEBHOOK_REORDER, s of delay) -> results, one per round
Rounds = dict[tuple[int, float], list[LaneOrder]]


def run(harness: Harness) -> list[Result]:
    found: Rounds = defaultdict(list)
    with ExitStack() as stack:
        telegram = stack.enter_context(simulator.start())
        receivers = [stack.enter_context(_receiver(harness, telegram, reorder_ms)) for reorder_ms in (USUAL_MS, 0)]
        for jitter_s in (0.0, JITTER_S):
            for seed in range(harness.scale.rounds):
                for receiver in receivers:
                    found[receiver.reorder_ms, jitter_s].append(receiver.measure(jitter_s, seed))
    orderly, disorderly = f"{RATE}/s, sent in order", f"{RATE}/s, kinds swapped by up to {JITTER_S * 1000:g} ms"
    lines = partial(_compare, found)
    return [
        lines(f"{orderly}, sent to in its lane, median", "ms", 0.0, lambda each: each.median_ms),
        lines(f"{orderly}, sent to in its lane, p99", "ms", 0.0, lambda each: each.p99_ms),
        lines(f"{disorderly}, behind a higher id", "of 1,000", JITTER_S, lambda each: each.swapped),
        lines(f"{disorderly}, sent to in its lane, p99", "ms", JITTER_S, lambda each: each.p99_ms),
    ]


def _compare(found: Rounds, case: str, unit: str, jitter_s: float, of: Callable[[LaneOrder], float]) -> Result:
    ours, without = ([of(each) for each in found[reorder_ms, jitter_s]] for reorder_ms in (USUAL_MS, 0))
    return Result("webhook order", case, unit, Side("lanes", ours), Side("WEBHOOK_REORDER=0", without))


@dataclass(frozen=True)
class Receiver:
    """A receiver with one value of WEBHOOK_REORDER, on its own Redis."""

    harness: Harness
    telegram: Simulator
    reorder_ms: int
    client: Redis
    child: BenchProcess
    place: str

    def measure(self, jitter_s: float, seed: int) -> LaneOrder:
        self.client.execute_command("FLUSHALL", "SYNC")
        count, place, telegram = self.harness.scale.ordered, self.place, self.telegram
        # Without an earlier update, the first one would be held.
        requests.post(place, json=make_update(0, 1), headers={SECRET_HEADER: SECRET}, timeout=30).raise_for_status()
        telegram.reset()
        telegram.disturb(jitter_s=jitter_s, seed=seed)
        hook = {"url": place, "secret_token": SECRET, "max_connections": CONNECTIONS}
        requests.post(f"{telegram.url}/bot{telegram.token}/setWebhook", json=hook, timeout=30).raise_for_status()
        telegram.stream(chats=TALKING, rate=RATE, total=count, seed=seed)
        until(lambda: telegram.stats()["confirmed"] == count, [self.child], f"{count} updates are delivered")
        until(lambda: not self.client.exists(keys.HELD), [self.child], "nothing is held")
        order = _inspect(self.client)
        self.harness.report(
            f"delays up to {jitter_s * 1000:g} ms, WEBHOOK_REORDER={self.reorder_ms}: {order.swapped:.1f} of 1,000 "
            f"swapped, {order.median_ms:.1f} ms, p99 {order.p99_ms:.1f} ms"
        )
        return order


@contextmanager
def _receiver(harness: Harness, telegram: Simulator, reorder_ms: int) -> Iterator[Receiver]:
    with harness.server(f"order-{reorder_ms}") as url, emptied(url) as client:
        settings = {**receiver_settings(url, free_port()), "WEBHOOK_REORDER": str(reorder_ms)}
        place = settings["WEBHOOK_URL"]
        with harness.child(f"receiver-{reorder_ms}", "poller", "webhook", **settings) as child:
            until(lambda: answers_at(place), [child], "the receiver listens")
            yield Receiver(harness, telegram, reorder_ms, client, child, place)


def _inspect(client: Redis) -> LaneOrder:
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
    return LaneOrder(1000 * swapped / len(waits_ms), median(waits_ms), percentile(waits_ms, 99))


def _sent_at_s(client: Redis, message_id: str) -> float:
    """By the clock of the machine, which Redis uses too."""
    stored: bytes = client.get(keys.body(message_id))  # type: ignore[assignment]
    return float(orjson.loads(stored.partition(b"\n")[2])[0][0]["answered_at"])
