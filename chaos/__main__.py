"""`python -m chaos --seconds 60 --seed 7`: run the whole path, kill its parts, and judge the history.

Exits with 1 when anything was lost, out of order, or ran twice at a time; says the seed and the first offences.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from chaos import bot
from chaos.checker import Verdict, check
from chaos.fleet import Fleet
from chaos.plan import Blow, blows
from chaos.systems import LANES, RECIPE, System
from sandbox import simulator
from sandbox.server import Server, start_server

LEASE_S = 3.0
CHATS = 60
#: After the last blow everything must be finished within this time.
CALM_WITHIN_S = 180.0
SHOWN = 10


class Chaos:
    """One run in a folder of its own."""

    def __init__(self, system: System, folder: Path, seed: int, rate: float) -> None:
        self._system = system
        self._folder = folder
        self._rate = rate
        self._seed = seed
        self._history = folder / "history.jsonl"
        self.redis: Server = start_server(folder / "redis")
        self.telegram = simulator.start("1:CHAOS")
        self.fleet = Fleet(system.parts, self._environment(), folder)
        self.blows = 0

    def run(self, seconds: float) -> Verdict:
        for name in self._system.parts:
            self.fleet.start(name)
        self.telegram.stream(chats=CHATS, rate=self._rate, total=0, seed=self._seed)
        ends_s = time.monotonic() + seconds
        for blow in blows(self._seed, self._system):
            time.sleep(blow.pause_s)
            if time.monotonic() > ends_s:
                break
            self._strike(blow)
        self.telegram.stop_stream()
        self._wait_until_calm()
        for name in self._system.parts:
            self.fleet.stop(name)
        return self._judge()

    def end(self) -> None:
        self.fleet.end()
        self.telegram.stop()
        self.redis.stop()

    def _strike(self, blow: Blow) -> None:
        self.blows += 1
        print(f"{self.blows:4}  {blow.what:15} {blow.whom}", flush=True)  # noqa: T201
        if blow.whom == "redis":
            self._strike_redis(blow)
            return
        self.fleet.ensure_running(blow.whom)
        match blow.what:
            case "kill_child":
                self.fleet.kill_child(blow.whom, int(blow.amount * 100))
            case "freeze":
                self.fleet.freeze(blow.whom, blow.amount * 2 * LEASE_S)
            case _:
                getattr(self.fleet, blow.what)(blow.whom)
        self.fleet.ensure_running(blow.whom)

    def _strike_redis(self, blow: Blow) -> None:
        match blow.what:
            case "kill":
                self.redis.kill()
                self.redis = start_server(self._folder / "redis", port=self.redis.port)
            case "freeze":
                os.kill(self.redis.pid, signal.SIGSTOP)
                time.sleep(blow.amount * 1.5 * LEASE_S)
                os.kill(self.redis.pid, signal.SIGCONT)
            case "cut":
                self._client().client_kill_filter(_type="normal", skipme=True)
            case "forget_scripts":
                self._client().script_flush()

    def _wait_until_calm(self) -> None:
        """Until Telegram holds nothing and no lane does either."""
        ends_s = time.monotonic() + CALM_WITHIN_S
        client = self._client()
        while time.monotonic() < ends_s:
            for name in self._system.parts:
                self.fleet.ensure_running(name)
            try:
                if not self.telegram.stats()["pending"] and not self._system.pending(client):
                    return
            except RedisError:
                pass
            time.sleep(0.2)

    def _judge(self) -> Verdict:
        with self._history.open() as lines:
            records = [json.loads(line) for line in lines]
        sent = self.telegram.stats()["added"]
        return check(
            records,
            expected=range(1, sent + 1),
            killed=self.fleet.killed,
            freezes=self.fleet.freezes,
            lease_s=LEASE_S,
        )

    def _client(self) -> Redis:
        return Redis(port=self.redis.port)

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "BOT_TOKEN": self.telegram.token,
            "BOT_API_URL": self.telegram.url,
            "BOT": "chaos.bot:handle",
            "REDIS_URL": self.redis.url,
            "ORDER_BY": self._system.order_by,
            "LEASE_SECONDS": str(LEASE_S),
            "RETRY_BACKOFF": "0.2",
            bot.HISTORY: str(self._history),
            bot.SLOWEST_S: "0.5",
        }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to kill for (default: 60)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000, help="of the plan (default: the clock)")
    parser.add_argument("--rate", type=float, default=100.0, help="updates per second (default: 100)")
    parser.add_argument("--recipe", action="store_true", help="not lanes, but hash-routed queues on stock Celery")
    parser.add_argument("--keep", type=Path, help="a folder for the history and the logs (default: none is kept)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as scratch:
        folder = arguments.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        chaos = Chaos(RECIPE if arguments.recipe else LANES, folder, arguments.seed, arguments.rate)
        try:
            verdict = chaos.run(arguments.seconds)
        finally:
            chaos.end()
    _report(verdict, arguments.seed, chaos.blows)
    return 0 if verdict.is_clean else 1


def _report(verdict: Verdict, seed: int, number: int) -> None:
    print(  # noqa: T201
        f"\nseed {seed}: {number} blows, {verdict.updates} updates in {verdict.runs} runs · "
        f"lost {len(verdict.lost)} · out of order {len(verdict.out_of_order)} · "
        f"overlaps {len(verdict.overlaps)} · finished more than once {verdict.duplicates}"
    )
    for problem in (verdict.lost + verdict.out_of_order + verdict.overlaps)[:SHOWN]:
        print("  " + problem)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
