"""A run of the whole program that takes a few seconds. CI runs the one with a poller for longer."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.exhaustive
def test_short_run(tmp_path: Path) -> None:
    options = ["--seconds", "6", "--seed", "5", "--rate", "20", "--keep", str(tmp_path), "--webhook"]

    run = subprocess.run([sys.executable, "-m", "chaos", *options], capture_output=True, text=True, timeout=300)

    assert run.returncode == 0, run.stdout + run.stderr
    assert "| lost " in run.stdout
    assert "seed 5" in run.stdout
    figures = dict(re.findall(r"^\| (.*?) +\| (.*?) +\|$", run.stdout, re.MULTILINE))
    assert int(figures["timers; late p50, p99, max"].partition(";")[0]) > 20
    assert int(figures["steps paid"]) > 0
    assert "answered" in figures["questions"]
    assert "all: " in figures["schedules fired"]
    assert re.match(r"\d; \d+ sent", figures["broadcasts; recipients"])
    assert {"history.jsonl", "picture.svg", "prefork.log"} <= {path.name for path in (tmp_path / "webhook").iterdir()}
