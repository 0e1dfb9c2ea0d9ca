"""Alternates the sides of a comparison, A B A B …, each in the setting that was fastest in a trial.

A slow phase of the machine then affects both sides of a round, and their ratio stays valid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

Choice = TypeVar("Choice")


def alternate(rounds: int, sides: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """The values of each side, one per round."""
    measured: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, measure in sides.items():
            measured[name].append(measure())
    return measured


def best(choices: Sequence[Choice], measure: Callable[[Choice], float]) -> tuple[Choice, float]:
    """The choice with the highest rate, each measured once, and that rate. A single choice is not measured: rate 0."""
    if len(choices) == 1:
        return choices[0], 0.0
    rates = [measure(choice) for choice in choices]
    rate = max(rates)
    return choices[rates.index(rate)], rate
