"""`from chatlanes import …`: every public name exists, and loads only what it needs."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import chatlanes
from tests.conftest import IMPORTED_BY_COLLECTING
from tests.support import ROOT

pytestmark = pytest.mark.slow


def loaded(statement: str) -> set[str]:
    """The modules of a new process after this statement."""
    code = f"import sys; {statement}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_every_name_exists() -> None:
    assert chatlanes.__all__ == sorted(chatlanes.__all__)
    for name in chatlanes.__all__:
        assert getattr(chatlanes, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = chatlanes.nothing


def test_every_name_is_documented() -> None:
    section = (ROOT / "docs/bots.md").read_text().partition("\n## Public names\n")[2]
    table = "".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))
    assert sorted(re.findall(r"`(\w+)", table)) == sorted(chatlanes.__all__)


def test_name_loads_only_what_it_needs() -> None:
    ours = {name for name in loaded("import chatlanes") if name.startswith("chatlanes.")}
    assert ours == set()
    assert loaded("from chatlanes import errors").isdisjoint({"celery", "redis", "requests", "pydantic"})
    assert loaded("from chatlanes import keys_of, load").isdisjoint({"celery", "redis", "requests"})
    assert loaded("from chatlanes import lanes").isdisjoint({"requests", "pydantic", "chatlanes.bot"})


@pytest.mark.parametrize("program", ["chatlanes", "chatlanes_sandbox"])
def test_a_program_loads_its_commands_when_they_are_used(program: str) -> None:
    """Ctrl-C while they are loaded would be a traceback."""
    assert loaded(f"import {program}.__main__").isdisjoint({"celery", "redis", "requests", "pydantic"})


def test_collecting_the_tests_imports_no_framework_that_takes_seconds() -> None:
    # Each of the processes that run tests collects all of them, and aiogram takes as long as all the rest
    assert not IMPORTED_BY_COLLECTING
