"""The sides of a comparison take turns: A B A B …, each in the setting that was the fastest when all were tried.

Whatever else the machine does for a while then slows down both sides of a round, and their ratio stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

Choice = TypeVar("Choice")


def alternate(rounds: int, sides: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """What each side measured, round by round."""
    measured: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, measure in sides.items():
            measured[name].append(measure())
    return measured


def best(choices: Sequence[Choice], measure: Callable[[Choice], float]) -> tuple[Choice, float]:
    """The one with the highest rate, each measured once, and that rate. A single one is not measured: its rate is 0."""
    if len(choices) == 1:
        return choices[0], 0.0
    rates = [measure(choice) for choice in choices]
    rate = max(rates)
    return choices[rates.index(rate)], rate
