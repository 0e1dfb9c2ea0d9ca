"""`python -m chaos --seconds 60 --seed 7`: run the whole system, kill its parts, and check the result.

Exits with 1 if an update was lost, ran out of order, twice at a time or in a wrong group, had effects by a stale
holder, or was buried without a reason, if a timer, a schedule or a broadcast broke its promise, or if a call of a
script is not a step of the specification (spec/). Then prints the seed and the shortest excerpt that shows the fault.

`--hours 24` repeats this with further seeds (pieces.py) and continues where it was ended.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from chaos.chart import draw
from chaos.check.checker import Judgement, check
from chaos.check.violation import Violation
from chaos.evidence import findings
from chaos.evidence.records import Evidence
from chaos.losses.run import losses
from chaos.pieces import OtherOptionsError, Piece, Total, load, run_pieces
from chaos.report import complaints, table
from chaos.run import chaos
from chaos.systems import timers
from chaos.systems.definitions import COLLECTING, LANES, RECIPE, WEBHOOK, System
from spec.conformance.judge import ACTIONS, Report, judge

#: Less than the time after which a run without progress is given up.
LONGEST_TIMER_S = 60.0
#: For each second of the run. With more, two busy cores would need minutes after it.
RECIPIENTS_PER_S = 10
#: What shapes a run, beside its seed: the same for all pieces of a long one.
SHAPING = ("seconds", "rate", "every", "recipe", "webhook", "collect", "timers", "recipients", "no_conformance")
#: The total of a long run, and the folders of pieces that have found something.
KEPT = Path(".data/chaos")

Column = tuple[str, Evidence, Judgement]


def main() -> int:
    arguments = _arguments()
    if arguments.losses is not None:
        return losses(arguments.losses, arguments.keep)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # exits cleanly, so all child processes are ended
    if arguments.hours:
        return _run_for_hours(arguments)
    arguments.seed = _now() if arguments.seed is None else arguments.seed
    systems = _systems(arguments)
    with tempfile.TemporaryDirectory(prefix="chaos-") as scratch:
        keep = arguments.judge or arguments.keep or Path(scratch)
        if not arguments.judge:
            for system in systems:
                _run(system, keep / system.name, arguments)
        columns = [(system.name, *_judged(system, keep / system.name, arguments)[:2]) for system in systems]
        seed = findings.load(keep / systems[0].name).seed
    _print(seed, columns)
    return 0 if columns[0][2].is_clean else 1


def _print(seed: int, columns: Sequence[Column]) -> None:
    print(f"\nseed {seed}\n\n{table(columns)}")  # noqa: T201
    _, evidence, verdict = columns[0]
    if not verdict.is_clean:
        print(f"\nseed {seed}:\n{complaints(verdict, evidence)}")  # noqa: T201


def _run_for_hours(arguments: argparse.Namespace) -> int:
    [system] = _systems(arguments)
    folder = arguments.keep or KEPT
    shaping = {name: getattr(arguments, name) for name in SHAPING}
    options = [
        f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
        for name, value in shaping.items()
        if value is not None and value is not False
    ]
    try:
        total = load(folder / "total.json", arguments.seed, _now(), " ".join(options))
    except OtherOptionsError as error:
        sys.exit(str(error))
    actions = [action for action in ACTIONS if action not in system.unused]

    def say(total: Total) -> None:
        print("\n" + "\n".join(total.lines(actions)) + "\n", flush=True)  # noqa: T201

    def run(seed: int) -> Piece:
        arguments.seed = seed
        return _piece(system, folder / str(seed), arguments)

    total = run_pieces(total, arguments.hours, folder / "total.json", run, say)
    return 1 if total.found else 0


def _piece(system: System, folder: Path, arguments: argparse.Namespace) -> Piece:
    """Keeps the folder, for --judge, if the piece has found something. What an ended start has left is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    begun_s = time.monotonic()
    _run(system, folder / system.name, arguments)
    run_s = time.monotonic() - begun_s
    evidence, verdict, report = _judged(system, folder / system.name, arguments)
    _print(arguments.seed, [(system.name, evidence, verdict)])
    found = {kind: len(violations) for kind, violations in verdict.violations.items() if violations}
    if not found:
        shutil.rmtree(folder)
    covered = sorted(report.covered)
    return Piece(arguments.seed, run_s, len(evidence.expected), len(evidence.faults), report.calls, found, covered)


def _now() -> int:
    return time.time_ns() % 100_000


def _systems(arguments: argparse.Namespace) -> list[System]:
    return [_with_timers(system, arguments) if system.has_timers else system for system in _chosen(arguments)]


def _with_timers(system: System, arguments: argparse.Namespace) -> System:
    seconds, count, recipients = arguments.seconds, arguments.timers, arguments.recipients
    each = 1 if count is None else round(count / (seconds * arguments.rate))
    longest_s = min(seconds / 5, LONGEST_TIMER_S)
    return replace(
        system,
        recipients=round(seconds * RECIPIENTS_PER_S) if recipients is None else recipients,
        settings={**system.settings, timers.EACH: str(each), timers.LONGEST_S: str(longest_s)},
    )


def _chosen(arguments: argparse.Namespace) -> list[System]:
    if arguments.both:
        return [LANES, RECIPE]
    if arguments.collect:
        return [COLLECTING]
    return [RECIPE if arguments.recipe else WEBHOOK if arguments.webhook else LANES]


def _run(system: System, folder: Path, arguments: argparse.Namespace) -> None:
    if folder.exists():
        sys.exit(f"{folder} exists: name another folder with --keep")
    folder.mkdir(parents=True)
    with chaos(system, folder) as running:
        running.run(arguments.seconds, arguments.seed, arguments.rate, arguments.every)
        running.save(arguments.seed)


def _judged(system: System, folder: Path, arguments: argparse.Namespace) -> tuple[Evidence, Judgement, Report]:
    found, evidence = findings.load(folder), findings.evidence(folder)
    verdict, report = check(evidence), Report()
    verdict.violations["did not stop"] = [Violation(text, ()) for text in found.hung]
    if system.lease_s is None and not arguments.no_conformance:
        report = _conformance(system, folder)
        divergence = report.divergence.partition("\n")[0]
        verdict.violations["not as specified"] = [Violation(divergence, ())] if divergence else []
    verdict.violations["drills failed"] = [Violation(text, ()) for text in found.drills]
    picture = _named_after(system, arguments) or folder / "picture.svg"
    picture.write_text(draw(evidence, found.backlog, f"{system.name}, seed {found.seed}"))
    if picture.parent != folder or arguments.keep:
        print(f"picture: {picture}")  # noqa: T201
    return evidence, verdict, report


def _conformance(system: System, folder: Path) -> Report:
    """Judges the recorded commands by the specification, and prints how much of it they cover."""
    if shutil.which("java") is None:
        print("conformance: not checked, because there is no Java (apt-get install default-jre-headless)")  # noqa: T201
        return Report()
    report = judge(folder / findings.MONITOR, system.unused)
    print("\n".join(report.lines()), flush=True)  # noqa: T201
    return report


def _named_after(system: System, arguments: argparse.Namespace) -> Path | None:
    """The path given with --picture; with --both each system's name is appended."""
    path: Path | None = arguments.picture
    return path.with_stem(f"{path.stem}-{system.name}") if path and arguments.both else path


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the faults (default: 60)")
    parser.add_argument("--seed", type=int, help="seed of the plan (default: the clock)")
    parser.add_argument(
        "--hours", type=float, help=f"run pieces of --seconds for this long, earlier starts included (kept in {KEPT})"
    )
    parser.add_argument("--rate", type=float, default=20.0, help="updates per second (default: 20)")
    parser.add_argument("--every", type=float, default=2.0, help="mean seconds between two faults (default: 2)")
    parser.add_argument(
        "--recipe", action="store_true", help="test hash-routed queues on stock Celery instead of lanes"
    )
    parser.add_argument("--webhook", action="store_true", help="receive updates by webhook, with two receivers")
    parser.add_argument("--collect", action="store_true", help="with COLLECT=messages and INTERRUPT=on")
    parser.add_argument("--timers", type=int, help="how many timers the updates set (default: one each; 0: none)")
    parser.add_argument(
        "--recipients", type=int, help="of the main broadcast (default: 10 per second; 0: no broadcasts)"
    )
    parser.add_argument("--both", action="store_true", help="lanes, then the recipe; the exit code is that of lanes")
    parser.add_argument(
        "--keep", type=Path, help="a new folder for the history and the logs (default: nothing is kept)"
    )
    parser.add_argument(
        "--no-conformance", action="store_true", help="do not compare the scripts' calls with the specification"
    )
    parser.add_argument(
        "--losses", nargs="*", metavar="WORD", help="instead: single blows to Redis, and what each costs"
    )
    parser.add_argument("--judge", type=Path, help="run nothing: check a kept folder again")
    parser.add_argument("--picture", type=Path, help="the picture's path (default: in the kept folder)")
    arguments = parser.parse_args()
    if arguments.hours and (arguments.both or arguments.judge or arguments.picture):
        parser.error("--hours runs one system, without --judge and --picture")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
