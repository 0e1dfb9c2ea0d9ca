"""A worker in the process of a test: celery.contrib.testing, and the fixture `celery_worker`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.process import Process

pytestmark = pytest.mark.slow

TESTS = ROOT / "tests" / "support" / "embedded.py"


def test_embedded_worker_runs_lanes_on_each_pool(redis_url: str, tmp_path: Path) -> None:
    """Several workers in one process, one after the other: as in a project's own tests."""
    plugins = ["-p", "celery.contrib.pytest", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", *plugins, "-c", "/dev/null", str(TESTS)]
    tests = Process("tests", command, tmp_path, {"REDIS_URL": redis_url})
    try:
        assert tests.exit_code() == 0
        assert "9 passed" in tests.log
    finally:
        tests.end()
