"""A violation found by the checker."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.evidence.aof import MessageId


@dataclass(frozen=True)
class Violation:
    """A sentence, and the updates or other messages whose history shows the violation."""

    text: str
    updates: tuple[MessageId, ...]

    def __str__(self) -> str:
        return self.text
