"""The plan of faults, which depends on the seed only, so that a failed run can be repeated."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from chaos.systems.definitions import System

OF_WORKERS = (
    *("kill_all", "kill_main", "freeze", "stop"),
    *("cut_redis", "hole_redis", "lose_redis", "cut_telegram", "hole_telegram"),
)
OF_POLLERS = ("kill_all", "freeze", "stop", "cut_redis", "hole_redis", "cut_telegram", "hole_telegram")
OF_PUBLISHERS = ("kill_all", "freeze", "stop", "cut_redis", "hole_redis", "lose_redis")
OF_REDIS = ("kill", "freeze", "cut", "forget_scripts", "outage", "stop_frozen")
OF_TELEGRAM = ("flood", "trouble", "lost_answers")
OF_UPDATES = ("terminate",)
OF_BROADCASTS = ("pause", "kill_start")


@dataclass(frozen=True)
class PlannedFault:
    """A fault and the pause before it. `amount`, 0 to 1, is its duration, or selects one of several targets."""

    pause_s: float
    what: str
    target: str
    amount: float


def faults(seed: int, system: System, every_s: float) -> Iterator[PlannedFault]:
    """Generates faults endlessly, one every `every_s` seconds on average."""
    chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
    weights = {
        "worker": 6,
        "child": 2,
        "poller": 6 if system.receives else 2,
        "redis": 2,
        "telegram": 1,
        "update": 1 if system.buried else 0,
        "broadcast": 1 if system.recipients else 0,
        "publisher": 2 if system.publishers else 0,
    }
    while True:
        pause_s = chance.uniform(0.3, 1.7) * every_s
        match chance.choices([*weights], [*weights.values()])[0]:
            case "worker":
                what, target = chance.choice(OF_WORKERS), chance.choice(list(system.workers))
            case "child":
                what, target = "kill_child", chance.choice(system.forking)
            case "poller":
                what, target = chance.choice(OF_POLLERS), chance.choice(list(system.pollers))
            case "publisher":
                what, target = chance.choice(OF_PUBLISHERS), chance.choice(list(system.publishers))
            case "redis":
                what, target = chance.choice(OF_REDIS), "redis"
            case "telegram":
                what, target = chance.choice(OF_TELEGRAM), "telegram"
            case "update":
                what, target = chance.choice(OF_UPDATES), "updates"
            case _:
                what, target = chance.choice(OF_BROADCASTS), "broadcast"
        yield PlannedFault(pause_s, what, target, chance.random())
