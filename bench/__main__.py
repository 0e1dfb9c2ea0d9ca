"""python -m bench: measure the core rows, or every row at greater sizes with --all; print a table and write JSON.

`python -m bench report FILE …` writes the figures into the documentation (report/publish.py); `python -m bench check`
fails if these are older than the code (report/check.py).
Exit code 0 whether goals are met or missed; anything else if a measured program failed.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from bench.measure.figures import Result
from bench.measure.harness import BenchFailedError, Harness
from bench.measure.scale import FULL, QUICK, WIDE, Scale
from bench.report import check, machine, publish, table
from bench.rows import CORE, ROWS

DATA = Path(".data/bench")


def main() -> None:
    if sys.argv[1:2] in (["check"], ["report"]):
        {"check": check, "report": publish}[sys.argv[1]].main(sys.argv[2:])
        return
    options = _parser().parse_args()
    # Interrupt the main thread, so that the context managers end every server and worker.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    DATA.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="run-", dir=DATA.resolve()) as directory:
            _run(options, Harness(Path(directory), _scale(options)))
    except BenchFailedError as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def _run(options: argparse.Namespace, harness: Harness) -> None:
    began_s = time.monotonic()
    command = _command(options)
    here = machine.describe(harness)
    about = {"command": command, "commit": machine.commit(), "code": check.digest(), "machine": here}
    results: list[Result] = []
    for name in options.only or (ROWS if options.all else CORE):
        harness.report(name)
        results += ROWS[name](harness)
        took_s = round(time.monotonic() - began_s)
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        # Written after each row: an interrupted run keeps what it has measured.
        _write(_file(options), table.document(results, at=at, seconds=took_s, **about))
    rounds = f"medians of {harness.scale.rounds} rounds (least – most), the sides taking turns; fsync always"
    machine_text = f"{machine.line(here)}; {machine.moment(here)}"
    print(table.table(results), "", rounds, f"$ {command}   # {took_s} s", machine_text, sep="\n")


def _command(options: argparse.Namespace) -> str:
    """The command line without --json: the name of the output file does not matter to readers."""
    flags = [f"--{name}" for name in ("all", "quick") if getattr(options, name)]
    rows = [text for row in options.only or () for text in ("--only", row)]
    rounds = ["--rounds", str(options.rounds)] if options.rounds else []
    return shlex.join(["python", "-m", "bench", *flags, *rows, *rounds])


def _file(options: argparse.Namespace) -> Path:
    """A run of some rows does not overwrite a complete run."""
    if options.json is not None:
        return Path(options.json)
    if options.only or options.quick:
        return DATA / "partial.json"
    return DATA / ("all.json" if options.all else "latest.json")


def _scale(options: argparse.Namespace) -> Scale:
    scale = QUICK if options.quick else WIDE if options.all else FULL
    return replace(scale, rounds=options.rounds) if options.rounds else scale


def _write(file: Path, document: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Benchmark lanes against stock Celery and others, alternating."
    )
    parser.add_argument("--only", action="append", choices=ROWS, help="measure this row; may be repeated")
    parser.add_argument("--all", action="store_true", help="measure every row, at greater sizes and with more cases")
    parser.add_argument("--rounds", type=int, metavar="N", help="number of rounds (default: five)")
    parser.add_argument("--quick", action="store_true", help="a few hundred messages: check that everything runs")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help=f"default: latest.json, all.json (--all) or partial.json in {DATA}",
    )
    return parser


if __name__ == "__main__":
    main()
