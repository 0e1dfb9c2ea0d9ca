"""The model as SVG: updates/s by worker processors, for one, two and four Redis servers. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

from bench.scaling.model import Costs, most

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 900, 390, 80, 50, 30, 30
MOST_PROCESSORS = 128
SERVERS = {1: "#2471a3", 2: "#1e8449", 4: "#b9770e"}
INK, PALE = "#1b2631", "#d5d8dc"
#: The handler in the picture: its processor time and its number of Bot API calls.
HANDLER_S, CALLS = 0.001, 1.0


def draw(costs: Costs) -> str:
    top = max(SERVERS) * most(costs, CALLS) * 1.3
    scale = _LogAxes(top)
    title = f"Updates/s by worker processors: a handler of {HANDLER_S * 1000:g} ms and {CALLS:g} call (model)"
    parts = [_text(LEFT, 24, title, size=16), *_axes(scale), *_lines(costs, scale)]
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *parts, "</svg>\n"])


class _LogAxes:
    """Both axes are logarithmic."""

    def __init__(self, top: float) -> None:
        self.top, self.low = top, 100.0

    def x(self, processors: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(processors) / math.log(MOST_PROCESSORS)

    def y(self, rate: float) -> float:
        share = math.log(rate / self.low) / math.log(self.top / self.low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def _axes(scale: _LogAxes) -> Iterable[str]:
    processors = 1
    while processors <= MOST_PROCESSORS:
        x = scale.x(processors)
        yield f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="{PALE}"/>'
        yield _text(x, HEIGHT - BOTTOM + 18, str(processors), anchor="middle")
        processors *= 2
    for rate in (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000):
        if rate <= scale.top:
            y = scale.y(rate)
            yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.0f}" y2="{y:.0f}" stroke="{PALE}"/>'
            yield _text(LEFT - 8, y + 4, f"{rate:,}", anchor="end")


def _lines(costs: Costs, scale: _LogAxes) -> Iterable[str]:
    for servers, colour in SERVERS.items():
        ceiling = servers * most(costs, CALLS)
        each = costs.worker_s + HANDLER_S
        points = [
            (scale.x(2 ** (n / 8)), scale.y(min(2 ** (n / 8) / each, ceiling)))
            for n in range(int(math.log2(MOST_PROCESSORS) * 8) + 1)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
        yield _text(points[-1][0], points[-1][1] - 6, f"{servers} Redis: {ceiling:,.0f}/s", colour=colour, anchor="end")


def _text(x: float, y: float, text: str, *, size: int = 12, colour: str = INK, anchor: str = "start") -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"'
    return f"<text {place}>{escape(text)}</text>"
