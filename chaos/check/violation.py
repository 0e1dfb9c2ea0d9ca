"""A violation found by the checker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """A sentence, and the updates whose history shows the violation."""

    text: str
    updates: tuple[int, ...]

    def __str__(self) -> str:
        return self.text
