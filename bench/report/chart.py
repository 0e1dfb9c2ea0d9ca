"""Figures as SVG: groups of horizontal bars with their spread. Pure functions.

Browsers and GitHub display the pictures; their texts say what the numbers are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from bench.measure.figures import Spread
from bench.report.table import number

WIDTH, LEFT, RIGHT, TOP = 900, 330, 130, 52
BAR, GAP = 20, 14
OURS, THEIRS = "#2471a3", "#aab7b8"
INK, PALE, LIMIT = "#1b2631", "#d5d8dc", "#c0392b"


@dataclass(frozen=True)
class Bar:
    """One side. Our bars have a colour of their own."""

    label: str
    spread: Spread
    is_ours: bool = False


def draw(title: str, unit: str, groups: Sequence[Sequence[Bar]], limit: float | None = None) -> str:
    """`limit` is a goal for all bars, drawn as a line across."""
    bars = [bar for group in groups for bar in group]
    top = max([bar.spread.most for bar in bars] + [limit or 0.0]) or 1.0
    height = TOP + len(bars) * BAR + len(groups) * GAP + 20
    parts = [_text(20, 26, f"{title}, {unit}" if bars else f"{title}: not measured yet", size=16), *_drawn(groups, top)]
    if bars and limit is not None:
        x = _x(limit, top)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - 20}" stroke="{LIMIT}"/>')
        parts.append(_text(x, height - 6, f"goal {limit:g}", anchor="middle", colour=LIMIT))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height}" fill="white"/>', *parts, "</svg>\n"])


def _drawn(groups: Sequence[Sequence[Bar]], top: float) -> Iterator[str]:
    y = float(TOP)
    for group in groups:
        for bar in group:
            yield from _bar(bar, y, top)
            y += BAR
        y += GAP


def _bar(bar: Bar, y: float, top: float) -> Iterable[str]:
    """The whisker extends from the minimum to the maximum of the rounds."""
    middle, end, spread = y + BAR / 2, _x(bar.spread.median, top), bar.spread
    colour = OURS if bar.is_ours else THEIRS
    least, most = _x(spread.least, top), _x(spread.most, top)
    yield _text(LEFT - 8, middle + 4, bar.label, anchor="end")
    yield f'<rect x="{LEFT}" y="{y + 2:.1f}" width="{max(end - LEFT, 1):.1f}" height="{BAR - 4}" fill="{colour}"/>'
    yield f'<line x1="{least:.1f}" x2="{most:.1f}" y1="{middle:.1f}" y2="{middle:.1f}" stroke="{INK}"/>'
    yield _text(most + 6, middle + 4, number(spread.median))


def _x(value: float, top: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * value / top


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "start", colour: str = INK) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {place}>{escape(text)}</text>"
