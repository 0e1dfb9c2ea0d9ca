"""`python -m bench.scaling FILE`: what the scaling row's figures mean for larger machines, and a plot of it.

FILE is the JSON that `make bench ARGS="--only scaling --only intake"` wrote. Without an intake row the poller's cost is
left out.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from bench.rows.scaling import COSTS
from bench.scaling.model import HEADROOM, Costs, Load, most, plan
from bench.scaling.plot import draw

RATES = (1_000, 10_000, 50_000)
#: Processor time of a handler, in ms, and its Bot API calls.
BOTS = ((0.0, 0.0), (1.0, 1.0), (5.0, 1.0), (5.0, 3.0))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE", help="JSON of a run of the scaling row")
    parser.add_argument("--plot", type=Path, metavar="SVG", help="where to draw it")
    given = parser.parse_args()
    results = orjson.loads(given.file.read_bytes())["results"]
    costs = costs_of(results)
    print(table(costs))
    if given.plot:
        given.plot.write_text(draw(costs, measured(results)))


def costs_of(results: list[dict[str, Any]]) -> Costs:
    """Medians of the rounds with one worker. Raises KeyError when the row is not there."""
    cases = {each["case"]: each["lanes"]["rounds"] for each in results if each["row"] == "scaling"}
    found = {name: median(cases[f"processor time of {part}"]) / 1e6 for name, part in COSTS.items()}
    intake = [each["lanes"]["rounds"] for each in results if each["row"] == "intake"]
    return Costs(**found, poller_s=1 / median(intake[0]) if intake else 0.0)


def measured(results: list[dict[str, Any]]) -> list[tuple[str, float, float]]:
    """(crowd, measured, predicted) in updates/s."""
    return [
        (each["case"], median(each["lanes"]["rounds"]), median(each["beside"]["rounds"]))
        for each in results
        if each["row"] == "scaling" and each.get("beside")
    ]


def table(costs: Costs) -> str:
    """Markdown: what each rate needs, for bots of several kinds."""
    lines = [
        f"One Redis has no processor time left at {most(costs, 0):,.0f} updates/s without calls, "
        f"{most(costs, 1):,.0f} with one call each, {most(costs, 3):,.0f} with three.",
        "",
        f"With each at most {HEADROOM:.0%} busy:",
        "",
        "| updates/s | handler | Redis servers | worker processors | pollers |",
        "|---|---|---|---|---|",
    ]
    for updates_per_s in RATES:
        for handler_ms, calls in BOTS:
            needs = plan(costs, Load(updates_per_s, handler_ms / 1000, calls))
            lines.append(
                f"| {updates_per_s:,} | {handler_ms:g} ms, {calls:g} calls | {needs.servers} | {needs.processors} "
                f"| {needs.pollers} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
