"""Builds the plain text and its entities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from chatlanes.sandbox.simulator.calls.params import RefusedError

Entity = dict[str, Any]


def utf16_length(text: str) -> int:
    """The length in UTF-16 units, as Telegram counts."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def cannot(why: str) -> RefusedError:
    return RefusedError(f"Bad Request: can't parse entities: {why}")


@dataclass
class Marked:
    """Text and entities, built from beginning to end."""

    text: str = ""
    entities: list[Entity] = field(default_factory=list)
    units: int = 0

    def write(self, piece: str) -> None:
        self.text += piece
        self.units += utf16_length(piece)

    def mark(self, start: int, kind: str, **more: Any) -> None:
        """An entity from `start`, in units, to the end; none if it is empty."""
        if self.units > start:
            entity = {"offset": start, "length": self.units - start, "type": kind, **more}
            self.entities.append({name: value for name, value in entity.items() if value is not None})


def link(made: Marked, start: int, url: str) -> None:
    """A link without a valid address is plain text, as at Telegram."""
    if "." in url or "://" in url:
        made.mark(start, "text_link", url=url if "://" in url else f"http://{url}/")
