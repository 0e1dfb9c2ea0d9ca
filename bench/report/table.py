"""Results as a table for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.measure.figures import Result, Side, Spread

HEAD = ("what", "lanes", "beside it", "lanes ÷ that", "goal", "")


def table(results: list[Result]) -> str:
    """Markdown, padded to be readable as plain text."""
    rows = [HEAD, *(_cells(result) for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def _cells(result: Result) -> tuple[str, ...]:
    ratio = result.ratio
    return (
        f"{result.row}: {result.case}",
        _named(result.ours, result.unit),
        _named(result.beside, result.unit) if result.beside else "–",
        _spread(ratio, "×") if ratio else "–",
        _goals(result),
        result.verdict,
    )


def _named(side: Side, unit: str) -> str:
    """The side, without its name if it is lanes: that is the heading of the column."""
    return ("" if side.name == "lanes" else f"{side.name}: ") + _shown(side, unit)


def _shown(side: Side, unit: str) -> str:
    return _spread(side.spread, unit) + (f", {side.how}" if side.how else "")


def _spread(spread: Spread, unit: str) -> str:
    return f"{number(spread.median)} {unit} ({number(spread.least)} – {number(spread.most)})"


def _goals(result: Result) -> str:
    return ", ".join(map(str, result.goals))


def number(value: float) -> str:
    """At least three digits; smaller ones are noise."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def document(results: list[Result], **about: Any) -> dict[str, Any]:
    """The content of the JSON file, with every round of every side."""
    return {**about, "results": [_entry(result) for result in results]}


def _entry(result: Result) -> dict[str, Any]:
    ratio = result.ratio
    return {
        "row": result.row,
        "case": result.case,
        "unit": result.unit,
        "lanes": _side(result.ours),
        "beside": _side(result.beside) if result.beside else None,
        "ratio": vars(ratio) if ratio else None,
        "goal": {"text": _goals(result), "verdict": result.verdict} if result.goals else None,
    }


def _side(side: Side) -> dict[str, Any]:
    return {"name": side.name, "how": side.how, "rounds": side.rounds, **vars(side.spread)}


def markdown(entries: Sequence[dict[str, Any]]) -> str:
    """The table for a page, from the entries of the JSON file."""
    lines = ["| what | lanes | beside it | lanes ÷ that | goal |", "|---|---|---|---|---|"]
    for each in entries:
        ratio, goal, unit = each["ratio"], each["goal"], each["unit"]
        cells = (
            f"{each['row']}: {each['case']}",
            _side_text(each["lanes"], unit),
            _side_text(each["beside"], unit) if each["beside"] else "–",
            _spread(Spread(**ratio), "×") if ratio else "–",
            f"{goal['text']}: {goal['verdict']}" if goal else "",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _side_text(side: dict[str, Any], unit: str) -> str:
    return _named(Side(side["name"], side["rounds"], side["how"]), unit)
