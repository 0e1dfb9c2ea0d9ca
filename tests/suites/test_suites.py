"""The comparison of `make celery-suite` with docs/compatibility.md."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.suites.__main__ import SUITES, different, documented, explained, until_finished
from tests.support import ROOT

STOCK = {"t/a.py::test_one[x]": "passed", "t/a.py::test_two": "passed", "t/a.py::test_three": "failed"}


@pytest.mark.parametrize(
    ("lanes", "found"),
    [
        (STOCK, []),
        ({**STOCK, "t/a.py::test_one[x]": "failed"}, ["t/a.py::test_one[x]"]),
        ({**STOCK, "t/a.py::test_two": "skipped"}, ["t/a.py::test_two"]),
        ({**STOCK, "t/a.py::test_three": "passed"}, []),
        ({}, ["t/a.py::test_one[x]", "t/a.py::test_two"]),
    ],
)
def test_a_test_differs_if_it_passes_on_stock_only(lanes: dict[str, str], found: list[str]) -> None:
    assert different(STOCK, lanes) == found


@pytest.mark.parametrize(
    ("lanes", "listed", "good"),
    [
        (STOCK, set(), True),
        ({**STOCK, "t/a.py::test_one[x]": "failed"}, {"test_one"}, True),
        ({**STOCK, "t/a.py::test_one[x]": "failed"}, set(), False),
        ({**STOCK, "t/a.py::test_one[x]": "failed"}, {"test_two"}, False),
        (STOCK, {"test_one"}, False),
        (STOCK, {"test_three", "test_of_another_version"}, True),
    ],
)
def test_the_differences_are_those_of_the_page(lanes: dict[str, str], listed: set[str], good: bool) -> None:
    assert explained(STOCK, lanes, listed) is good


def test_the_page_lists_tests_of_each_suite_that_differs() -> None:
    listed = {(suite.name, mode): documented(suite, mode) for suite in SUITES for mode in suite.modes}
    assert {name for name, tests in listed.items() if not tests} == {("kombu", "installed")}


@pytest.mark.slow
def test_a_test_that_never_ends_has_failed_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "limit.py").write_text("from tests.suites import plugin\nplugin.TEST_SECONDS = 3\n")
    (tmp_path / "test_it.py").write_text(
        "import time\ndef test_one(): pass\ndef test_never():\n  while True: time.sleep(1)\ndef test_two(): pass\n"
    )
    results = tmp_path / "results.json"
    path = os.pathsep.join(map(str, (ROOT, tmp_path)))
    env = {**os.environ, "PYTHONPATH": path, "SUITE_LANES": "", "SUITE_RESULTS": str(results)}
    command = [sys.executable, "-m", "pytest", "-p", "tests.suites.plugin", "-p", "limit", "test_it.py"]
    found = until_finished(command, results, cwd=tmp_path, env=env)
    assert found == {
        "test_it.py::test_one": "passed",
        "test_it.py::test_never": "failed",
        "test_it.py::test_two": "passed",
    }
