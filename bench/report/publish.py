"""python -m bench report [FILE …]: writes measured figures into the documentation.

docs/figures/bench.json holds the newest measurement of each case, with its command and machine; pictures and tables are
generated from it alone. A page names the rows of a table between `<!-- bench: throughput; latency: 200/s -->` and
`<!-- /bench -->`: whole rows, or the cases of a row that contain the text after the colon.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson

from bench.measure.figures import Spread
from bench.measure.harness import ROOT
from bench.report import machine
from bench.report.chart import Bar, draw
from bench.report.table import markdown, number

#: In the documentation, next to the pages that show them.
FIGURES = Path("docs/figures")
PAGES = (Path("README.md"), Path("docs/bench.md"), Path("docs/scaling.md"), Path("docs/webhook.md"))
#: Row, case and the sentence that shows both sides of it.
HEADLINES = (
    (
        "recipe",
        "no-op, 500 chats, in order",
        "**{ours} tasks/s in order per chat**; {other} with chats hashed to queues on stock Celery",
    ),
    (
        "slow chat",
        "p99 of the others, 100/s, beside the recipe",
        "**{ours} ms** (p99) until a handler starts while another chat is slow; {other} ms with hashed queues",
    ),
    (
        "recovery",
        "kill -9 to started again, lease 15 s",
        "**{ours} s** from `kill -9` of a worker until its update runs again (lease 15 s); {other} s on stock Celery "
        "(visibility timeout 10 s)",
    ),
)
PLACE = re.compile(r"(<!-- bench: ([^>]*?) -->\n).*?(<!-- /bench -->)", re.DOTALL)

Entry = dict[str, Any]


def main(arguments: Sequence[str], root: Path = ROOT) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench report", description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="JSON files of bench runs; later ones win")
    parser.add_argument("--anew", action="store_true", help="discard older measurements")
    options = parser.parse_args(arguments)
    store = root / FIGURES / "bench.json"
    entries = [] if options.anew or not store.exists() else orjson.loads(store.read_bytes())
    for file in options.files:
        entries = merged(entries, orjson.loads(file.read_bytes()))
    store.parent.mkdir(parents=True, exist_ok=True)
    store.write_bytes(orjson.dumps(entries, option=orjson.OPT_INDENT_2) + b"\n")
    for name, picture in pictures(entries).items():
        (root / FIGURES / name).write_text(picture)
    for page in PAGES:
        if (root / page).exists():
            (root / page).write_text(filled((root / page).read_text(), entries))


def merged(entries: list[Entry], document: Entry) -> list[Entry]:
    """A new measurement replaces the older one of its case; new cases are added at the end of their row."""
    here = document["machine"]
    about = {name: document[name] for name in ("command", "at", "commit", "code")}
    about |= {"machine": machine.line(here), "moment": machine.moment(here)}
    fresh = {(each["row"], each["case"]): {**each, "measured": about} for each in document["results"]}
    kept = [fresh.pop((each["row"], each["case"]), each) for each in entries]
    rows = list(dict.fromkeys(each["row"] for each in (*kept, *fresh.values())))
    return sorted((*kept, *fresh.values()), key=lambda each: rows.index(each["row"]))


def filled(text: str, entries: Iterable[Entry]) -> str:
    """The page with its tables filled in."""
    known = list(entries)

    def table(place: re.Match[str]) -> str:
        if place[2] == "headlines":
            return f"{place[1]}{_headlines(known)}\n{place[3]}"
        wanted = [name.strip().partition(": ") for name in place[2].split(";")]
        found = [each for row, _, text in wanted for each in known if each["row"] == row and text in each["case"]]
        return f"{place[1]}{_shown(found) if found else NOTHING}\n{place[3]}"

    return PLACE.sub(table, text)


NOTHING = "Not measured yet on a quiet machine."


def _headlines(entries: Sequence[Entry]) -> str:
    """The three figures, and where they are from."""
    found = []
    lines = []
    for row, case, sentence in HEADLINES:
        for each in entries:
            if (each["row"], each["case"]) == (row, case):
                found.append(each)
                ours, other = number(each["lanes"]["median"]), number(each["beside"]["median"])
                lines.append(f"* {sentence.format(ours=ours, other=other)}")
    return "\n".join([*lines, "", _measured(found)]) if found else NOTHING


def _shown(entries: Sequence[Entry]) -> str:
    """A table, followed by the source of its figures."""
    return f"{markdown(entries)}\n\n{_measured(entries)}"


def _measured(entries: Sequence[Entry]) -> str:
    """The commands, commits and machines of these figures."""
    runs = dict.fromkeys(
        f"`{make(each['command'])}` at {each['commit']} on {each['at'][:10]} ({each['moment']})"
        for each in (entry["measured"] for entry in entries)
    )
    places = dict.fromkeys(entry["measured"]["machine"] for entry in entries)
    return f"Measured by {'; by '.join(runs)}, on {'; '.join(places)}.\n"


def make(command: str) -> str:
    """The make target for a `python -m bench …` command."""
    words = command.removeprefix("python -m bench").split()
    target = "make bench-all" if "--all" in words else "make bench"
    rest = " ".join(word for word in words if word != "--all")
    return f'{target} ARGS="{rest}"' if rest else target


# -- pictures


def pictures(entries: Sequence[Entry]) -> dict[str, str]:
    """SVG by file name; a picture without data says "not measured yet"."""
    made = {
        "throughput.svg": ("No-op tasks, fsync always, each at its best settings", "tasks/s", _of(entries, _is_no_op)),
        "waits.svg": ("Handlers that wait 50 ms, 500 at a time", "updates/s", _of(entries, _is("waits"))),
        "computes.svg": ("Handlers that compute 5 ms", "updates/s", _of(entries, _is("computes"))),
        "latency.svg": ("From Telegram's answer to the handler's start", "ms", _of(entries, _is("latency"))),
    }
    drawn = {name: draw(title, unit, groups) for name, (title, unit, groups) in made.items()}
    for row, title, limit in (
        ("costs", "What an update takes, lanes ÷ stock", 0.5),
        ("growth", "An update's cost as things grow, beside the smallest", 1.2),
    ):
        bars = [Bar(_case(each), Spread(**each["ratio"]), True) for each in entries if each["row"] == row]
        drawn[f"{row}.svg"] = draw(title, "×", [bars] if bars else [], limit)
    return drawn


def _of(entries: Sequence[Entry], wanted: Any) -> list[list[Bar]]:
    """One group per case of chatlanes: its bar, followed by the bars that it is compared with."""
    groups: dict[tuple[Any, ...], list[Bar]] = {}
    for each in filter(wanted, entries):
        ours = each["lanes"]
        bars = groups.setdefault((each["row"], *ours["rounds"]), [Bar(_ours(each), _spread(ours), True)])
        if each["beside"]:
            bars.append(Bar(each["beside"]["name"], _spread(each["beside"])))
    return list(groups.values())


def _ours(each: Entry) -> str:
    how = each["lanes"]["how"]
    what = {
        "latency": _case(each),
        "throughput": each["case"].rpartition(", ")[2],
        "waits": f"{each['case'].partition(' beside ')[0].rpartition(', ')[2]}, {how}",
    }
    return f"lanes, {what.get(each['row'], how)}"


def _case(each: Entry) -> str:
    return str(each["case"]).removesuffix(", for an update").removeprefix("processor time for an update, ")


def _spread(side: Entry) -> Spread:
    return Spread(side["median"], side["least"], side["most"])


def _is(*rows: str) -> Any:
    return lambda each: each["row"] in rows


def _is_no_op(each: Entry) -> bool:
    return each["row"] in {"throughput", "recipe"} or (each["row"] == "peers" and "fsync always" in each["case"])
