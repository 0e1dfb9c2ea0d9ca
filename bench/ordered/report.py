"""python -m bench.ordered report [FILE …]: writes the data of runs into docs/figures/ordered.json and the tables of
docs/comparison.md from it, between `<!-- referee: NAME -->` and `<!-- /referee -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from bench.measure.figures import Spread
from bench.measure.harness import ROOT
from bench.ordered.system import ABSENT, NAMES, load
from bench.report.table import number

DATA, PAGE = Path("docs/figures/ordered.json"), Path("docs/comparison.md")
PLACE = re.compile(r"(<!-- referee: (\w+) -->\n).*?(<!-- /referee -->)", re.DOTALL)
NOTHING = "Not measured yet on a quiet machine.\n"
OURS = "celery_lanes"
KINDS = {"lost": "lost", "twice": "twice", "out_of_order": "out of order", "overlapping": "overlapping"}

Outcome = dict[str, Any]
#: A figure of an outcome, its unit, and whether more is better. Each with the rows that it says something about.
RATES = ("1 key", "500 keys", "5,000 keys", "50,000 keys", "500 keys, 50 ms", "a backlog of a million")
WAITS = ("one slow key", "one key fails")
FAULTS = ("kill -9 of a worker", "kill -9 of the server", "a worker frozen for two leases")
#: The rows of each table that has only some.
ROWS = {"rates": RATES, "waits": WAITS, "recovery": FAULTS}
#: The fields of the document of a run that describe all its outcomes.
PART = ("at", "commit", "command", "machine", "load", "lease_s")


def main(arguments: Sequence[str], root: Path = ROOT) -> None:
    store = root / DATA
    if missing := [each for each in arguments if not Path(each).exists()]:
        sys.exit(f"there is no {missing[0]}: run `make referee` first, or name the file of its --json")
    if arguments:
        document = merged([orjson.loads(Path(file).read_bytes()) for file in arguments])
        store.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    page = root / PAGE
    page.write_text(filled(page.read_text(), orjson.loads(store.read_bytes()) if store.exists() else None))


def merged(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The outcomes of all parts of a run, each with its part; later ones replace earlier ones."""
    found = {
        (each["system"], each["row"], each["round"]): {"part": {name: part[name] for name in PART}, **each}
        for part in documents
        for each in part["outcomes"]
    }
    return {**documents[0], "outcomes": list(found.values())}


def filled(page: str, document: dict[str, Any] | None) -> str:
    def table(place: re.Match[str]) -> str:
        always = {"systems": systems, "absent": absent}
        if place[2] in always:
            return f"{place[1]}{always[place[2]]()}{place[3]}"
        made = TABLES[place[2]](document["outcomes"]) + measured(document, place[2]) if document else NOTHING
        return f"{place[1]}{made}{place[3]}"

    return PLACE.sub(table, page)


def measured(document: dict[str, Any], table: str) -> str:
    """The runs that the figures of a table are from; one on a busy machine is called that."""
    rows, runs = ROWS.get(table), dict[str, None]()
    for each in document["outcomes"]:
        if rows is None or each["row"] in rows:
            runs[_run({**document, **each.get("part", {})}, document["processors"])] = None
    return f"\nMeasured by {'; '.join(runs)}.\n"


def _run(part: dict[str, Any], processors: int) -> str:
    run = f"`{part['command']}` at {part['commit']} on {part['at'][:10]}, on {part['machine']}"
    busy = part["load"] > processors / 2
    noise = f", **when other programs used the machine (load {part['load']:g}): do not quote these**" if busy else ""
    return f"{run}, with a lease of {part['lease_s']} s{noise}"


def text(outcomes: Sequence[Outcome]) -> str:
    """All tables, as the terminal shows them."""
    return "\n".join(f"{name}:\n{make(outcomes)}" for name, make in TABLES.items())


def sentence(outcome: Outcome) -> str:
    """One line for people who watch the run."""
    parts = [outcome["words"]]
    if outcome.get("unfinished"):
        parts = [f"{outcome['unfinished']:,} not done in the time of the row"]
    if outcome["rate"]:
        parts.append(f"{outcome['rate']:,.0f}/s")
    if outcome["p99_ms"] is not None:
        parts.append(f"wait {outcome['median_ms']:,.0f} ms, p99 {outcome['p99_ms']:,.0f}")
    if times := outcome.get("continued_s"):
        known = [each for each in times if each is not None]
        parts.append(f"{len(known)} of {len(times)} keys continued, the last after {max(known, default=0):.1f} s")
    if outcome["tries"]:
        parts.append(f"tries {min(outcome['tries'])} to {max(outcome['tries'])}")
    return "; ".join(parts)


# -- figures


def rate(outcome: Outcome) -> float | None:
    return _number(outcome["rate"])


def p99(outcome: Outcome) -> float | None:
    return _number(outcome["p99_ms"])


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def continued(outcome: Outcome) -> float | None:
    """Until the last key of the struck worker or server continues; None if one never does, or if none had anything left
    to do.
    """
    times = outcome.get("continued_s") or [None]
    return None if None in times else float(max(times))


def longest(outcome: Outcome) -> float | None:
    value = _number(outcome["longest_ms"])
    return None if value is None else value / 1000


def broken(outcome: Outcome) -> str:
    """`3 lost, 1 twice`; empty if the system kept order and lost nothing."""
    return ", ".join(f"{outcome[kind]:,} {words}" for kind, words in KINDS.items() if outcome[kind])


# -- tables

Figure = Callable[[Outcome], float | None]
Column = tuple[str, str, Figure]


def promises(outcomes: Sequence[Outcome]) -> str:
    """Messages that were lost, run twice, out of order or overlapping: the worst round of each row."""

    def cell(found: Sequence[Outcome]) -> str:
        worst = max(found, key=lambda each: sum(each[kind] for kind in KINDS))
        unfinished = worst.get("unfinished", 0)
        return broken(worst) or (f"kept; {unfinished:,} not done in time" if unfinished else "kept")

    rows = list(dict.fromkeys(each["row"] for each in outcomes))
    return _table(outcomes, [(row, row, cell) for row in rows])


def rates(outcomes: Sequence[Outcome]) -> str:
    return _table(outcomes, [_figure(f"{row}, messages/s", row, rate) for row in RATES])


def waits(outcomes: Sequence[Outcome]) -> str:
    columns = [_figure(f"{row}: p99 of the others, ms", row, p99) for row in WAITS]

    def tries(found: Sequence[Outcome]) -> str:
        all_tries = [each for outcome in found for each in outcome["tries"]]
        return f"{min(all_tries)} – {max(all_tries)}" if all_tries else "–"

    return _table(outcomes, [*columns, ("tries of a message that fails", "one key fails", tries)])


def recovery(outcomes: Sequence[Outcome]) -> str:
    live = (FAULTS[0], FAULTS[2])

    def column(row: str) -> tuple[str, str, Callable[[Sequence[Outcome]], str]]:
        title, _, cell = _figure(f"{row}: its last key continues, s", row, continued, "never")
        return title, row, lambda found: cell(struck) if (struck := [o for o in found if o.get("continued_s")]) else "–"

    columns = [column(row) for row in FAULTS]
    return _table(outcomes, [*columns, *(_figure(f"{row}: longest wait, s", row, longest) for row in live)])


def losses(outcomes: Sequence[Outcome]) -> str:
    """Every figure in which a system that kept its promises in that row is better than celery-lanes."""
    wanted: list[tuple[Iterable[str], Figure, str, int]] = [
        (RATES, rate, "messages/s", 1),
        (WAITS, p99, "ms (p99 of the others)", -1),
        (FAULTS, continued, "s until the last key continues", -1),
    ]
    lines = [
        line
        for rows, figure, unit, sign in wanted
        for row in rows
        for line in _better(outcomes, row, figure, unit, sign)
    ]
    ours = [each for each in outcomes if each["system"] == OURS and "failed" not in each and broken(each)]
    lines += sorted({f"* **{each['row']}**: celery-lanes itself: {broken(each)}." for each in ours})
    return "\n".join(lines or ["In no row of this run."]) + "\n"


def _better(outcomes: Sequence[Outcome], row: str, figure: Figure, unit: str, sign: int) -> list[str]:
    medians: dict[str, float] = {}
    for name in NAMES:
        found = [each for each in _of(outcomes, name, row) if name == OURS or not broken(each)]
        values = [value for each in found if (value := figure(each)) is not None]
        if values:
            medians[name] = median(values)
    if OURS not in medians:
        return []
    ours = medians.pop(OURS)
    # Less than a tenth is noise.
    better = [name for name, value in medians.items() if (value - ours) * sign > 0.1 * ours]
    better.sort(key=lambda name: -sign * medians[name])
    others = ", ".join(f"{load(name).title} {number(medians[name])}" for name in better)
    return [f"* **{row}**: {others}; celery-lanes {number(ours)} {unit}."] if better else []


def _of(outcomes: Iterable[Outcome], name: str, row: str) -> list[Outcome]:
    return [each for each in outcomes if (each["system"], each["row"]) == (name, row) and "failed" not in each]


def _figure(
    title: str, row: str, figure: Figure, none: str = "–"
) -> tuple[str, str, Callable[[Sequence[Outcome]], str]]:
    def cell(found: Sequence[Outcome]) -> str:
        values = [value for each in found if (value := figure(each)) is not None]
        if not values or (none != "–" and len(values) < len(found)):
            return none
        spread = Spread.of(values)
        several = f" ({number(spread.least)} – {number(spread.most)})" if len(values) > 1 else ""
        return number(spread.median) + several

    return title, row, cell


def _table(outcomes: Sequence[Outcome], columns: Sequence[tuple[str, str, Callable[[Sequence[Outcome]], str]]]) -> str:
    """A system that did not run a row has the reason once, below."""
    measured_rows = {each["row"] for each in outcomes}
    shown = [column for column in columns if column[1] in measured_rows]
    lines = ["| | " + " | ".join(title for title, _, _ in shown) + " |", "|---" * (len(shown) + 1) + "|"]
    for name in [each for each in NAMES if any(outcome["system"] == each for outcome in outcomes)]:
        cells = [cell(found) if (found := _of(outcomes, name, row)) else "did not run" for _, row, cell in shown]
        lines.append(f"| {load(name).title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def failures(outcomes: Sequence[Outcome]) -> str:
    lines = [
        f"* {load(each['system']).title}, {each['row']}: {each['failed'][:300]}"
        for each in outcomes
        if "failed" in each
    ]
    return "\n".join(lines or ["None."]) + "\n"


def systems() -> str:
    lines = ["| | what its documentation promises for a key | configuration | its documentation |", "|---|---|---|---|"]
    for name in NAMES:
        system = load(name)
        files = f"`bench/ordered/systems/{name}/`"
        packages = ", ".join((*system.python, *system.node)) or "of the project"
        pages = ", ".join(f"[{number_of}]({page})" for number_of, page in enumerate(system.pages, 1))
        lines.append(f"| {system.title} | {system.claims} | {files}; {packages} | {pages} |")
    avoided = [f"* {load(name).title}: {load(name).avoid}" for name in NAMES if load(name).avoid]
    return "\n".join([*lines, "", *avoided]) + "\n"


def absent() -> str:
    return "\n".join(f"* {name}: {reason}" for name, reason in ABSENT.items()) + "\n"


TABLES: dict[str, Callable[[Sequence[Outcome]], str]] = {
    "losses": losses,
    "promises": promises,
    "rates": rates,
    "waits": waits,
    "recovery": recovery,
    "failures": failures,
}
