"""The files in .github are valid, and run only what the Makefile and .ci have."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.slow

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
SCHEMAS = {
    **dict.fromkeys(WORKFLOWS, "github-workflows"),
    ROOT / ".github/ISSUE_TEMPLATE/fault.yml": "github-issue-forms",
    ROOT / ".github/ISSUE_TEMPLATE/wish.yml": "github-issue-forms",
    ROOT / ".github/ISSUE_TEMPLATE/config.yml": "github-issue-config",
}


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_file_is_valid(path: Path) -> None:
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{SCHEMAS[path]}", str(path)]
    checked = subprocess.run(checker, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_workflows_run_commands_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    written = "".join(path.read_text() for path in WORKFLOWS)
    named = set(re.findall(r"(?:run: |\[|- |, )'?make ([a-z][a-z-]+)", written)) | set(
        re.findall(r"target: ([\w-]+)", written)
    )
    assert named >= {"chaos", "dist", "mutants", "test-all", "test-core", "test-oldest", "test-quick"}
    assert named <= targets
