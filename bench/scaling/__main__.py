"""`python -m bench.scaling`: computes what larger machines can do; writes docs/scaling.md and a picture.

Reads docs/figures/bench.json, where `python -m bench report` stores the figures of the rows scaling and intake.
"""

from __future__ import annotations

import re
from statistics import median
from typing import Any

import orjson

from bench.measure.harness import ROOT
from bench.report.publish import FIGURES
from bench.rows.throughput.scaling import COSTS
from bench.scaling.model import HEADROOM, Costs, Load, most, plan
from bench.scaling.plot import draw

PLACE = re.compile(r"(<!-- model -->\n).*?(<!-- /model -->)", re.DOTALL)
RATES = (1_000, 10_000, 50_000)
#: Processor time of a handler, in ms, and the number of its Bot API calls.
BOTS = ((0.0, 0.0), (1.0, 1.0), (5.0, 1.0), (5.0, 3.0))


def main() -> None:
    entries = orjson.loads((ROOT / FIGURES / "bench.json").read_bytes())
    costs = costs_of(entries)
    (ROOT / FIGURES / "scaling.svg").write_text(draw(costs))
    page = ROOT / "docs" / "scaling.md"
    page.write_text(PLACE.sub(lambda place: f"{place[1]}{table(costs)}\n{place[2]}", page.read_text()))


def costs_of(results: list[dict[str, Any]]) -> Costs:
    """Medians of the rounds with one worker. Raises KeyError if the row is missing."""
    cases = {each["case"]: each["lanes"]["rounds"] for each in results if each["row"] == "scaling"}
    found = {name: median(cases[f"processor time of {part}"]) / 1e6 for name, part in COSTS.items()}
    intake = [each["lanes"]["rounds"] for each in results if each["row"] == "intake"]
    return Costs(**found, poller_s=1 / median(intake[0]) if intake else 0.0)


def table(costs: Costs) -> str:
    """Markdown: the resources for each rate, for several kinds of bots."""
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
