"""celery_lanes knows nothing of the packages that build on it: neither their names nor their subject."""

from __future__ import annotations

import re
from pathlib import Path

import celery_lanes
from tests.support import ROOT

PACKAGE = Path(celery_lanes.__file__).parents[1]
FOREIGN = re.compile(
    r"telegram|chatlanes|getupdates|update_?id|bot[ _]?token|\bbots?\b|\bchats?\b|\bsupergroup\b|DURABLE_REPLICAS",
    re.IGNORECASE,
)
#: Servers and free ports for tests come from the sandbox; the environment of tests/ is that of the repository.
STARTER = re.compile(r"^from chatlanes_sandbox\.(?:server|ports) import .*$", re.MULTILINE)
#: They name the other packages on purpose.
OF_BOTH = {"test_vocabulary.py", "test_timers.py", "pyproject.toml"}

SOURCES = sorted(
    file
    for file in (*PACKAGE.rglob("*"), *(ROOT / "tests/lanes").rglob("*"))
    if file.suffix in {".py", ".lua", ".md", ".toml"} and file.name not in OF_BOTH and "build" not in file.parts
)


def test_no_word_of_another_package() -> None:
    found = {file: FOREIGN.findall(STARTER.sub("", file.read_text())) for file in SOURCES}
    assert {file: words for file, words in found.items() if words} == {}
