"""What to do next to whom: chosen by the seed alone, so that a bad run can be planned again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from chaos.systems import System

#: The shortest and longest pause between two blows, seconds.
PAUSE_S = (0.5, 2.5)


@dataclass(frozen=True)
class Blow:
    """`what` is a method of Chaos; `pause_s` is the time before it."""

    pause_s: float
    what: str
    whom: str
    amount: float  # of 1


def blows(seed: int, system: System) -> Iterator[Blow]:
    chance = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
    of_workers = ["kill_all", "kill_main", "freeze", "stop"]
    while True:
        pause_s = chance.uniform(*PAUSE_S)
        match chance.choices(["worker", "child", "poller", "redis"], weights=[5, 2, 2, 2])[0]:
            case "worker":
                what, whom = chance.choice(of_workers), chance.choice(list(system.workers))
            case "child":
                what, whom = "kill_child", chance.choice(system.forking)
            case "poller":
                what, whom = chance.choice(["kill_all", "stop", "freeze"]), chance.choice(list(system.pollers))
            case _:
                what, whom = chance.choice(["kill", "freeze", "cut", "forget_scripts"]), "redis"
        yield Blow(pause_s, what, whom, chance.random())
