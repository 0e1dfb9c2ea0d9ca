"""The arithmetic of a comparison: medians, ratios with their spread, goals. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal


@dataclass(frozen=True)
class Spread:
    """The median of the rounds, with the minimum and the maximum."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Raises ValueError without values."""
        if not values:
            raise ValueError("a spread needs at least one value")
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True)
class Goal:
    """A limit for a median: that of our side, or that of the ratio to the other side."""

    of: Literal["value", "ratio"]
    sense: Literal["at least", "at most"]
    limit: float

    def is_met(self, measured: float) -> bool:
        return measured >= self.limit if self.sense == "at least" else measured <= self.limit

    def __str__(self) -> str:
        sign = "≥" if self.sense == "at least" else "≤"
        return f"{sign} {self.limit:,g}{' ×' if self.of == 'ratio' else ''}"


@dataclass(frozen=True)
class Side:
    """One measured value per round. The table shows the `name` of the other side; `how` describes this side."""

    name: str
    rounds: list[float]
    how: str = ""

    @property
    def spread(self) -> Spread:
        return Spread.of(self.rounds)


@dataclass(frozen=True)
class Result:
    """One line of the table: our side and the side it is compared with (None: nothing to compare with)."""

    row: str
    case: str
    unit: str
    ours: Side
    beside: Side | None = None
    goal: Goal | tuple[Goal, ...] | None = None

    @property
    def goals(self) -> tuple[Goal, ...]:
        return self.goal if isinstance(self.goal, tuple) else (self.goal,) if self.goal else ()

    @property
    def ratio(self) -> Spread | None:
        return Spread.of(ratios(self.ours.rounds, self.beside.rounds)) if self.beside else None

    @property
    def verdict(self) -> str:
        """`met` if all goals are met, otherwise `missed`; empty without a goal."""
        if not self.goals:
            return ""
        return "met" if all(map(self._is_met, self.goals)) else "missed"

    def _is_met(self, goal: Goal) -> bool:
        judged = self.ours.spread if goal.of == "value" else self.ratio
        if judged is None:
            raise ValueError(f"{self.row}, {self.case}: a goal for a ratio needs a side to compare with")
        return goal.is_met(judged.median)


def ratios(ours: Sequence[float], beside: Sequence[float]) -> list[float]:
    """The ratio of each round: a slow phase of the machine affects both sides of a round. Raises ValueError."""
    if len(ours) != len(beside):
        raise ValueError(f"{len(ours)} rounds cannot be compared with {len(beside)}")
    return [mine / other if other else math.inf for mine, other in zip(ours, beside, strict=True)]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that `percent` of all values do not exceed (nearest rank). Raises ValueError if there are
    none.
    """
    if not values:
        raise ValueError("a percentile needs at least one value")
    rank = math.ceil(len(values) * percent / 100)
    return sorted(values)[max(rank, 1) - 1]


def fullest(moments: Sequence[float], window: float) -> int:
    """The largest number of these sorted moments that lie within one window."""
    most, first = 0, 0
    for last, moment in enumerate(moments):
        while moment - moments[first] >= window:
            first += 1
        most = max(most, last - first + 1)
    return most


#: The rate is measured between these shares of the backlog: before the first the pool starts up, after the second it
#: drains.
STEADY_FROM, STEADY_TO = 0.10, 0.95


def steady_rate(samples: Sequence[tuple[float, int]], total: int) -> float | None:
    """Messages per second from the first sample with 10 % done to the first with 95 % done.

    A sample is (seconds, messages left). None until the second sample exists.
    """
    first = _first(samples, total * (1 - STEADY_FROM))
    last = _first(samples, total * (1 - STEADY_TO))
    if first is None or last is None:
        return None
    (from_s, before), (to_s, after) = first, last
    if to_s <= from_s:
        raise ValueError(f"all of {total} were done between two samples: too few to measure")
    return (before - after) / (to_s - from_s)


def _first(samples: Sequence[tuple[float, int]], at_most: float) -> tuple[float, int] | None:
    return next((sample for sample in samples if sample[1] <= at_most), None)
