"""celery_lanes knows nothing of the packages that build on it: neither their names nor their subject."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import celery_lanes
from tests.support import ROOT

PACKAGE = Path(celery_lanes.__file__).parents[1]
FOREIGN = re.compile(
    r"telegram|chatlanes|getupdates|update_?id|bot[ _]?token|\bbots?\b|\bchats?\b|\bsupergroup\b|DURABLE_REPLICAS",
    re.IGNORECASE,
)
IMPORT = re.compile(r"^from (tests[.\w]*) import (.*)$", re.MULTILINE)
#: Modules of tests/lanes's processes, which no test imports.
RUN = {ROOT / "tests/conftest.py", ROOT / "tests/support/lab_app.py", ROOT / "tests/support/embedded.py"}
#: They name the other packages on purpose.
OF_BOTH = {"test_vocabulary.py", "test_timers.py", "pyproject.toml"}


def imported(files: Iterable[Path]) -> set[Path]:
    """These files of tests/, and those that they import."""
    found: set[Path] = set()
    left = [*files]
    while left:
        file = left.pop()
        found.add(file)
        for module, names in IMPORT.findall(file.read_text()):
            path = ROOT / module.replace(".", "/")
            places = [
                path.with_suffix(".py"),
                path / "__init__.py",
                *(path / f"{n}.py" for n in re.findall(r"\w+", names)),
            ]
            left += [place for place in places if place.exists() and place not in found]
    return found


TESTS = imported({*(ROOT / "tests/lanes").rglob("*.py"), *RUN})
SOURCES = sorted(
    file
    for file in (*PACKAGE.rglob("*"), *TESTS)
    if file.suffix in {".py", ".lua", ".md", ".toml"} and file.name not in OF_BOTH and "build" not in file.parts
)


def test_no_word_of_another_package() -> None:
    """Neither in celery_lanes, nor in its tests and what they import."""
    assert {ROOT / "tests/support/lab.py", ROOT / "tests/support/process.py"} <= TESTS
    found = {file: FOREIGN.findall(file.read_text()) for file in SOURCES}
    assert {file: words for file, words in found.items() if words} == {}
