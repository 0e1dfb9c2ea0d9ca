"""python -m bench.ordered: every system on every row, in turns; prints the verdicts and writes the data of the report.

Without --full it is the quick run: small sizes, one round. `python -m bench.ordered report` writes the tables of
docs/comparison.md from docs/figures/ordered.json, or from the FILEs of runs, which then become that file.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from bench.measure.harness import BenchFailedError
from bench.ordered import report
from bench.ordered.plan import FULL, QUICK, Row, Scale
from bench.ordered.runner import measure
from bench.ordered.system import NAMES, load
from bench.report import machine

DATA = Path(".data/referee")


def main() -> None:
    if sys.argv[1:2] == ["report"]:
        report.main(sys.argv[2:])
        return
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    scale = FULL if options.full else QUICK
    scale = replace(scale, rounds=options.rounds) if options.rounds else scale
    rows = [row for row in scale.rows if not options.row or row.name in options.row]
    file = options.json or DATA / ("full.json" if options.full else "quick.json")
    try:
        _run(options.system or NAMES, rows, scale, file)
    except KeyboardInterrupt:
        sys.exit(130)


def _run(names: list[str] | tuple[str, ...], rows: list[Row], scale: Scale, file: Path) -> None:
    """The systems take turns within a row, and the rows within a round. The file is written after each."""
    began_s = time.monotonic()
    about = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": machine.commit(),
        "command": " ".join(["make referee", *_arguments()]),
        "lease_s": scale.lease_s,
        "machine": f"{os.cpu_count()} × {machine.processor()}, {platform.system()} {platform.release()}",
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }
    outcomes: list[dict[str, Any]] = []
    for turn in range(scale.rounds):
        for row in rows:
            for name in names if turn < (row.rounds or scale.rounds) else ():
                outcomes.append({"system": name, "row": row.name, "round": turn, **_one(name, row, scale)})
                about["seconds"] = round(time.monotonic() - began_s)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(orjson.dumps({**about, "outcomes": outcomes}, option=orjson.OPT_INDENT_2) + b"\n")
    print(report.text(outcomes), f"\n{about['seconds']} s; written to {file}")


def _arguments() -> list[str]:
    return [f'ARGS="{shlex.join(sys.argv[1:])}"'] if sys.argv[1:] else []


def _one(name: str, row: Row, scale: Scale) -> dict[str, Any]:
    """A system that cannot be installed or does not work is part of the result: its row has the reason."""
    began_s = time.monotonic()
    try:
        outcome = measure(name, load(name), row, scale)
    except (BenchFailedError, OSError, RuntimeError) as error:
        outcome = {"failed": str(error)}
    words = outcome.get("failed") or report.sentence(outcome)
    print(f"{row.name}: {name}: {words}  [{time.monotonic() - began_s:.0f} s]", file=sys.stderr, flush=True)
    return outcome


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.ordered", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--system", action="append", choices=NAMES, help="may be repeated; default: all")
    names = list(dict.fromkeys(row.name for row in (*QUICK.rows, *FULL.rows)))
    parser.add_argument("--row", action="append", choices=names, help="may be repeated; default: all")
    parser.add_argument(
        "--full", action="store_true", help="the sizes and rounds of the published figures; takes hours"
    )
    parser.add_argument("--rounds", type=int, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"default: quick.json or full.json in {DATA}")
    return parser


if __name__ == "__main__":
    main()
