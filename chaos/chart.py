"""Draws a chaos run as SVG: the faults over time, updates finished per second, and updates waiting.

Any browser displays the picture; its size does not depend on the length of the run. Pure functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise

from chaos.evidence.records import Evidence, InjectedFault

WIDTH, LEFT, RIGHT, TOP = 1200, 110, 20, 60
ROW, CHART, GAP = 18, 130, 45
COLOURS = {"kill": "#c0392b", "freeze": "#2471a3", "hole": "#7d3c98", "cut": "#d68910", "stop": "#5d6d7e"}
OTHER = "#1e8449"
AREA, INK, PALE = "#85c1e9", "#1b2631", "#d5d8dc"

Points = list[tuple[float, float]]


def draw(evidence: Evidence, backlog: Sequence[tuple[float, int]], title: str) -> str:
    """`backlog` has pairs of time and number of waiting updates."""
    ends = [run.end_s for run in evidence.runs if run.outcome == "end"]
    times = [*(run.start_s for run in evidence.runs), *ends, *(at_s for at_s, _ in backlog)] or [0.0]
    scale = _TimeAxis(min(times), max(*times, min(times) + 1))
    rows = list(dict.fromkeys(sorted(fault.target for fault in evidence.faults)))
    charts_top = TOP + ROW * len(rows) + GAP
    finished = _per_bin(ends, scale)
    waiting = [(scale.x(at_s), float(count)) for at_s, count in backlog]
    parts = [
        *_legend(title),
        *_timeline(evidence.faults, rows, scale),
        *_chart("finished per second", finished, charts_top, scale),
        *_chart("waiting", waiting, charts_top + CHART + GAP, scale),
    ]
    height = charts_top + 2 * (CHART + GAP)
    size = f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height}" fill="white"/>', *parts, "</svg>\n"])


class _TimeAxis:
    """Maps time to x."""

    def __init__(self, from_s: float, to_s: float) -> None:
        self.from_s, self.to_s = from_s, to_s
        self._per_s = (WIDTH - LEFT - RIGHT) / (to_s - from_s)

    def x(self, at_s: float) -> float:
        return LEFT + (at_s - self.from_s) * self._per_s

    def ticks(self) -> Iterable[float]:
        """At most twelve, at round numbers of seconds."""
        length_s = self.to_s - self.from_s
        step_s = next((s for s in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600) if length_s / s <= 12), 7200)
        return (float(s) for s in range(0, int(length_s) + 1, step_s))


def _legend(title: str) -> list[str]:
    entries = [*COLOURS.items(), ("other", OTHER)]
    parts = [_text(LEFT, 22, title, size=16)]
    for place, (what, colour) in enumerate(entries):
        parts.append(f'<rect x="{LEFT + place * 80}" y="34" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(LEFT + place * 80 + 14, 43, what))
    return parts


def _timeline(faults: Sequence[InjectedFault], rows: list[str], scale: _TimeAxis) -> list[str]:
    parts = [_text(LEFT - 8, TOP + row * ROW + 13, target, anchor="end") for row, target in enumerate(rows)]
    for fault in faults:
        colour = COLOURS.get(fault.what.partition("_")[0], OTHER)
        width = max(2.0, scale.x(fault.at_s + fault.for_s) - scale.x(fault.at_s))
        y = TOP + rows.index(fault.target) * ROW + 3
        what = f"{fault.what} {fault.target} at {fault.at_s - scale.from_s:.1f} s"
        parts.append(
            f'<rect x="{scale.x(fault.at_s):.1f}" y="{y}" width="{width:.1f}" height="{ROW - 5}" fill="{colour}" '
            f'fill-opacity="0.8"><title>{escape(what)}</title></rect>'
        )
    return parts


def _per_bin(times_s: Sequence[float], scale: _TimeAxis) -> Points:
    """Rates per second, averaged over bins of at least one second and a few pixels."""
    bin_s = max(1.0, (scale.to_s - scale.from_s) / 300)
    counts = Counter(int((at_s - scale.from_s) / bin_s) for at_s in times_s)
    bins = range(int((scale.to_s - scale.from_s) / bin_s) + 1)
    return [(scale.x(scale.from_s + (number + 0.5) * bin_s), counts[number] / bin_s) for number in bins]


def _chart(name: str, points: Points, top: float, scale: _TimeAxis) -> list[str]:
    highest = max((value for _, value in points), default=0.0) or 1.0
    bottom = top + CHART
    parts = [_text(LEFT, top - 8, f"{name}, at most {highest:,.0f}")]
    for tick_s in scale.ticks():
        x = scale.x(scale.from_s + tick_s)
        parts.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="{PALE}"/>')
        parts.append(_text(x, bottom + 15, f"{tick_s:.0f} s", anchor="middle"))
    line = [(x, bottom - value / highest * CHART) for x, value in points]
    if len(line) > 1:
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in _thinned(line))
        parts.append(f'<polygon points="{line[0][0]:.1f},{bottom} {drawn} {line[-1][0]:.1f},{bottom}" fill="{AREA}"/>')
    parts.append(f'<line x1="{LEFT}" y1="{bottom}" x2="{WIDTH - RIGHT}" y2="{bottom}" stroke="{INK}"/>')
    return parts


def _thinned(line: Points) -> Points:
    """At most two points per pixel, so the file of an hour is as small as that of a minute. Peaks are kept."""
    kept = [line[0]]
    for (_, y), (x, next_y) in pairwise(line):
        if x - kept[-1][0] >= 0.5:
            kept.append((x, next_y))
        elif next_y < y and next_y < kept[-1][1]:
            kept[-1] = (kept[-1][0], next_y)
    return kept


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{INK}">{escape(text)}</text>'
