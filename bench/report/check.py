"""python -m bench check: fails if published figures are older than the last change of the code that they measure.

A run of the bench records the digest of that code. It is the same for the same programs, whatever their comments and
docstrings, and on every version of Python.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from bench.measure.harness import ROOT
from bench.report.publish import FIGURES, Entry, make

#: The packages that are measured, and folders in them that no row runs.
MEASURED = ("chatlanes", "packages/celery-lanes/celery_lanes")
NOT_MEASURED = ("cli", "demo")
AGAIN = """Measure again, on a machine that does nothing else, and publish:
  make bench-all
  .venv/bin/python -m bench report --anew .data/bench/all.json
  .venv/bin/python -m bench.scaling"""


def main(arguments: Sequence[str], root: Path = ROOT) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench check", description=__doc__)
    parser.add_argument(
        "--grace-days",
        type=int,
        metavar="N",
        help="fail only if the code was changed more than N days after the measurement",
    )
    days = parser.parse_args(arguments).grace_days
    stale = stale_in(orjson.loads((root / FIGURES / "bench.json").read_bytes()), digest(root))
    if not stale:
        print(f"{FIGURES}/bench.json: every figure is of this code")
        return
    print(described(stale), file=sys.stderr)
    until = oldest(stale) + timedelta(days or 0)
    if days is None or last_change(root) > until:
        sys.exit(1)
    print(f"This is not an error yet: it becomes one when the code is changed after {until:%Y-%m-%d}", file=sys.stderr)


def stale_in(entries: Sequence[Entry], code: str) -> list[Entry]:
    """The figures of other code, and those without a digest."""
    return [each for each in entries if each["measured"].get("code") != code]


def described(stale: Sequence[Entry]) -> str:
    """The rows of each run, and how to measure them again."""
    runs: dict[str, dict[str, None]] = {}
    for each in stale:
        measured = each["measured"]
        run = f"{make(measured['command'])} at {measured['commit']} on {measured['at'][:10]}"
        runs.setdefault(run, {})[each["row"]] = None
    lines = [f"  {run}: {', '.join(rows)}" for run, rows in runs.items()]
    measured = " and ".join(MEASURED)
    return "\n".join([f"{FIGURES}/bench.json has figures of older code than {measured}:", *lines, AGAIN])


def oldest(entries: Sequence[Entry]) -> datetime:
    return min(datetime.fromisoformat(each["measured"]["at"]) for each in entries)


def last_change(root: Path) -> datetime:
    """The time of the newest commit that changed the measured code. Raises CalledProcessError without a repository."""
    but = [f":!{package}/{name}" for package in MEASURED for name in NOT_MEASURED]
    command = ["git", "log", "-1", "--format=%cI", "--", *MEASURED, *but]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    return datetime.fromisoformat(ended.stdout.strip())


def digest(root: Path = ROOT) -> str:
    whole = hashlib.sha256()
    for package, path in ((each, path) for each in MEASURED for path in sorted((root / each).rglob("*"))):
        name = path.relative_to(root / package)
        if name.parts[0] not in NOT_MEASURED and path.suffix in (".py", ".lua"):
            code = python(path.read_text()) if path.suffix == ".py" else lua(path.read_text())
            whole.update(f"{name.as_posix()}\n{code}\n".encode())
    return whole.hexdigest()[:16]


def python(text: str) -> str:
    """The program without comments and docstrings. Not `ast.dump`, which differs between versions of Python."""
    return "".join(_parts(ast.parse(text)))


def _parts(node: Any) -> Iterator[str]:
    if isinstance(node, ast.AST):
        yield f"({type(node).__name__}"
        for name, value in ast.iter_fields(node):
            if name == "body" and _has_docstring(node):
                value = value[1:]
            if value not in (None, []):
                yield f" {name}="
                yield from _parts(value)
        yield ")"
    elif isinstance(node, list):
        for each in node:
            yield from _parts(each)
    else:
        yield repr(node)


def _has_docstring(node: ast.AST) -> bool:
    """True if the first statement is a docstring."""
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return ast.get_docstring(node, clean=False) is not None


def lua(text: str) -> str:
    """The script without blank lines and lines of comments."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("--"))
