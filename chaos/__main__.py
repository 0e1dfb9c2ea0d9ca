"""`python -m chaos --seconds 60 --seed 7`: run the whole path, kill its parts, and judge what is left.

Exits with 1 when anything was lost, out of order, twice at a time, done by a stale holder, or buried without a reason;
says the seed, and the shortest excerpt that shows it.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from chaos import findings
from chaos.checker import Verdict, check
from chaos.offence import Offence
from chaos.picture import draw
from chaos.records import Evidence
from chaos.report import complaints, table
from chaos.run import chaos
from chaos.systems import LANES, RECIPE, WEBHOOK, System


def main() -> int:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # nothing that was started outlives us
    systems = _systems(arguments)
    with tempfile.TemporaryDirectory(prefix="chaos-") as scratch:
        keep = arguments.judge or arguments.keep or Path(scratch)
        if not arguments.judge:
            for system in systems:
                _run(system, keep / system.name, arguments)
        columns = [(system.name, *_judged(system, keep / system.name, arguments)) for system in systems]
        seed = findings.load(keep / systems[0].name).seed
    print(f"\nseed {seed}\n\n{table(columns)}")  # noqa: T201
    _, evidence, verdict = columns[0]
    if not verdict.is_clean:
        print(f"\nseed {seed}:\n{complaints(verdict, evidence)}")  # noqa: T201
    return 0 if verdict.is_clean else 1


def _systems(arguments: argparse.Namespace) -> list[System]:
    if arguments.both:
        return [LANES, RECIPE]
    return [RECIPE if arguments.recipe else WEBHOOK if arguments.webhook else LANES]


def _run(system: System, folder: Path, arguments: argparse.Namespace) -> None:
    folder.mkdir(parents=True)
    with chaos(system, folder) as running:
        running.run(arguments.seconds, arguments.seed, arguments.rate, arguments.every)
        running.save(arguments.seed)


def _judged(system: System, folder: Path, arguments: argparse.Namespace) -> tuple[Evidence, Verdict]:
    found, evidence = findings.load(folder), findings.evidence(folder)
    verdict = check(evidence)
    verdict.offences["did not stop"] = [Offence(text, ()) for text in found.hung]
    verdict.offences["drills failed"] = [Offence(text, ()) for text in found.drills]
    picture = _named_after(system, arguments) or folder / "picture.svg"
    picture.write_text(draw(evidence, found.backlog, f"{system.name}, seed {found.seed}"))
    if picture.parent != folder or arguments.keep:
        print(f"picture: {picture}")  # noqa: T201
    return evidence, verdict


def _named_after(system: System, arguments: argparse.Namespace) -> Path | None:
    """Of two pictures the second is the recipe's."""
    path: Path | None = arguments.picture
    return path.with_stem(f"{path.stem}-{system.name}") if path and arguments.both else path


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to strike (default: 60)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000, help="of the plan (default: the clock)")
    parser.add_argument("--rate", type=float, default=30.0, help="updates per second (default: 30)")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two blows, mean (default: 2)")
    parser.add_argument("--recipe", action="store_true", help="not lanes, but hash-routed queues on stock Celery")
    parser.add_argument("--webhook", action="store_true", help="updates come by webhook, to two receivers")
    parser.add_argument("--both", action="store_true", help="lanes, then the recipe, side by side; lanes are judged")
    parser.add_argument("--keep", type=Path, help="a new folder for the history and the logs (default: none is kept)")
    parser.add_argument("--judge", type=Path, help="run nothing: judge what was kept in this folder once more")
    parser.add_argument("--picture", type=Path, help="where to draw it (default: beside the history, if it is kept)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
