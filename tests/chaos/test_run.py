"""A run of the whole program that takes a few seconds. CI runs the one with a poller for longer."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import until

pytestmark = pytest.mark.slow

#: A part that runs until it is killed.
PART = """
import sys
from pathlib import Path
from chaos.systems.processes import Processes
processes = Processes({"part": ["sleep", "600"]}, {"part": {}}, Path(sys.argv[1]))
processes.start("part")
print(processes.pid("part"), flush=True)
sys.stdin.read()
"""


def test_a_killed_run_leaves_no_process_not_even_a_frozen_one(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PART, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        part = psutil.Process(int(run.stdout.readline()))
        os.kill(part.pid, signal.SIGSTOP)

        run.kill()

    with suppress(psutil.NoSuchProcess):
        until(lambda: part.status() == psutil.STATUS_ZOMBIE)


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
