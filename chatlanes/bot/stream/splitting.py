"""Splits a text into messages of at most 4,096 UTF-16 units, as Telegram counts. Pure.

The pieces joined are the text, except that pieces without visible characters are dropped. The first pieces do not
change while text is added at the end. A split prefers, in this order, the end of a paragraph, line, sentence and word,
and never divides a surrogate pair. Entities are shifted; one that is too long for its piece is divided with the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

LIMIT = 4096

#: Ends of paragraphs, lines, sentences and words. The separator belongs to the piece before it.
BOUNDARIES = tuple(map(re.compile, (r"\n\s*\n", r"\n", r"[.!?…。！？]+[)\"'»”]*(?:\s|(?<=[。！？]))", r"\s")))

#: True if a split is allowed at this index of the text.
Allowed = Callable[[int], bool]


class TextPiece(NamedTuple):
    """The content of one message. `entities` as in the Bot API; None: not given."""

    text: str
    entities: list[dict[str, Any]] | None = None
    parse_mode: str | None = None

    @property
    def is_plain(self) -> bool:
        return not self.entities and self.parse_mode is None


def units(text: str) -> int:
    """The length in UTF-16 units."""
    return len(text) if text.isascii() else len(text) + sum(character > "\uffff" for character in text)


def split(text: str, limit: int = LIMIT) -> list[TextPiece]:
    """Split a text without formatting."""
    return [TextPiece(text[start:end]) for start, end in _ranges(text, limit, lambda index: True)]


def split_entities(text: str, entities: Sequence[dict[str, Any]], limit: int = LIMIT) -> list[TextPiece]:
    """Split a text with entities, if possible between two of them."""
    places = [0, *accumulate(units(character) for character in text)]  # index in the text -> offset in units
    inside = [
        range(bisect_left(places, each["offset"]) + 1, bisect_left(places, each["offset"] + each["length"]))
        for each in entities
    ]
    ranges = _ranges(text, limit, lambda index: not any(index in each for each in inside))
    return [TextPiece(text[start:end], _within(entities, places[start], places[end])) for start, end in ranges]


def end_of_piece(text: str, start: int, limit: int, allowed: Allowed) -> int:
    """The index at which the piece that begins at `start` ends. `start` + 1 at least."""
    end = _longest(text, start, limit)
    if end == len(text):
        return end
    window, size = text[start:end], end - start
    for may, least in ((allowed, size // 2), (allowed, size // 4), (_always, size // 2), (_always, 1)):
        for boundary in BOUNDARIES:
            found = [place for place in _ends(boundary, window) if place >= least and may(start + place)]
            if found:
                return start + found[-1]
        if may(end):
            return end
    return end


def _always(index: int) -> bool:
    return True


def _ends(boundary: re.Pattern[str], window: str) -> Iterator[int]:
    return (found.end() for found in boundary.finditer(window))


def _longest(text: str, start: int, limit: int) -> int:
    """The largest end of a piece that is not longer than `limit`. A lone half of a pair counts as one unit."""
    end = min(len(text), start + limit)
    while (excess := units(text[start:end]) - limit) > 0:
        end -= (excess + 1) // 2
    return max(end, start + 1)


def _ranges(text: str, limit: int, allowed: Allowed) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(text):
        end = end_of_piece(text, start, limit, allowed)
        if not text[start:end].isspace():
            yield start, end
        start = end


def _within(entities: Sequence[dict[str, Any]], start: int, end: int) -> list[dict[str, Any]]:
    found = []
    for each in entities:
        first, last = max(each["offset"], start), min(each["offset"] + each["length"], end)
        if first < last:
            found.append({**each, "offset": first - start, "length": last - first})
    return found
