"""The sides of a comparison take turns: A B A B …

Whatever else the machine does for a while then slows down both sides of a round, and their ratio stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping


def alternate(rounds: int, sides: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """What each side measured, round by round."""
    measured: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, measure in sides.items():
            measured[name].append(measure())
    return measured
