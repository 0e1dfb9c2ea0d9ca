"""`make mutants`: make each change in a copy of the repository, run the tests there, and report which test noticed it.

With --conformance, the changes of scripts are judged by a simulated run instead of by tests: that it breaks a promise
(chaos/simulation), or that a call is not a step of the specification (spec/).

Fails if a change survives; with --conformance, if it is not explained (UNNOTICED in changes.py). The test that noticed
a change last time (noticed_by.json) runs first, then those that are most likely to; a run ends with the first failure.
The embedded server is used without the exhaustive tests, as in `make test`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from threading import Lock

import pytest

from tests.mutants.changes import CHANGES, IN_LUA, UNNOTICED, Change
from tests.support import ROOT

#: Tests in the order in which they run, until one fails. Paths, and an expression of marks.
QUICK, ALL = "not exhaustive and not slow", "not exhaustive"
STAGES = (
    (("tests/lanes/protocol",), QUICK),
    (("tests/lanes", "--ignore=tests/lanes/protocol"), QUICK),
    (("tests/lanes",), ALL),
    (("tests/pipeline",), ALL),
)
#: The simulation moves no backlog, so it does not call these.
NOT_SIMULATED = ("adopt.lua", "move_out.lua")
#: Two runs with other seeds reach what one does not. One that breaks a promise is not compared with the specification.
SIMULATED = [("--conformance", "--steps", "3000", "--seed", seed) for seed in ("1", "2")]
NOTICED = re.compile(r"The event: .*|(?:PromiseBrokenError|ResponseError): .*")
#: name of a change -> the test that noticed it last
NOTICED_BY = Path(__file__).with_name("noticed_by.json")
PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider")
WRITING = Lock()
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - |$)", re.MULTILINE)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these changes, by a part of their names")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time; default: all processors")
    parser.add_argument("--conformance", action="store_true", help="simulate and compare with the specification")
    chosen = parser.parse_args(arguments)
    killer_of = simulated if chosen.conformance else killed_by
    changes = [
        each
        for each in (simulated_changes() if chosen.conformance else CHANGES)
        if not chosen.names or any(name in each.name for name in chosen.names)
    ]
    with ThreadPoolExecutor(chosen.jobs) as threads:
        killers = list(threads.map(partial(reported, killer_of), changes))
    survivors = [change.name for change, killer in zip(changes, killers, strict=True) if not killer]
    print(f"{len(changes) - len(survivors)} of {len(changes)} changes were noticed")
    why = {name: reason for reason, names in UNNOTICED.items() for name in names} if chosen.conformance else {}
    for name in survivors:
        print(f"SURVIVED: {name}{f' ({why[name]})' if name in why else ''}")
    return 0 if changes and set(survivors) <= set(why) else 1


def reported(killer_of: Callable[[Change], str], change: Change) -> str:
    begun = time.monotonic()
    killer = killer_of(change)
    print(f"{change.name}: {killer or 'SURVIVED'} ({time.monotonic() - begun:.0f} s)", flush=True)
    return killer


def killed_by(change: Change) -> str:
    """The first test that fails with the change; empty if all pass."""
    last = noticed_by().get(change.name)
    with changed_copy(change) as folder:
        if last and (killer := failing(folder, "-m", "", last)):
            return killer
        for paths, marks in STAGES:
            if killer := failing(folder, "-m", marks, *paths):
                remember(change, killer)
                return killer
    return ""


def failing(folder: str, *arguments: str) -> str:
    """The first test that fails; empty if all pass, or if there is no such test."""
    ended = subprocess.run(
        [*PYTEST, *arguments], cwd=folder, env=environment(folder), capture_output=True, text=True, check=False
    )
    if ended.returncode == pytest.ExitCode.TESTS_FAILED:
        return ", ".join(FAILED.findall(ended.stdout)) or "a test"
    if ended.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.USAGE_ERROR):
        raise RuntimeError(f"pytest ended with {ended.returncode}\n{ended.stdout}{ended.stderr}")
    return ""


def noticed_by() -> dict[str, str]:
    known: dict[str, str] = json.loads(NOTICED_BY.read_text())
    return known


def remember(change: Change, test: str) -> None:
    with WRITING:
        known = {**noticed_by(), change.name: test}
        NOTICED_BY.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


def simulated_changes() -> list[Change]:
    return [each for each in IN_LUA if not each.file.endswith(NOT_SIMULATED)]


def simulated(change: Change) -> str:
    """The effect of the change in a simulated run; empty if none."""
    with changed_copy(change) as folder:
        for options in SIMULATED:
            command = (sys.executable, "-m", "chaos.simulation", *options)
            ended = subprocess.run(
                command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False
            )
            if ended.returncode != 0:
                found = NOTICED.search(ended.stdout)
                return found[0] if found else ended.stderr.strip().rpartition("\n")[2]
    return ""


@contextmanager
def changed_copy(change: Change) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        for name in tracked():
            target = Path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
        change.make(Path(folder))
        yield folder


@cache
def tracked() -> list[str]:
    """The files of the repository: a test that misses one would fail whatever the change is."""
    listed = subprocess.run(("git", "ls-files", "-z"), cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).exists()]


def environment(folder: str) -> dict[str, str]:
    """The copy is imported instead of the installed code."""
    packages = [folder, *(f"{folder}/packages/{name}" for name in ("celery-lanes", "chatlanes-sandbox"))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(packages), "PYTHONDONTWRITEBYTECODE": "1"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
