"""The supervisor runs several processes as one. Each test runs one with made-up parts, in a process of its own."""

import fcntl
import os
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from chatlanes_sandbox.supervisor.child_process import NEVER, restart_after_s
from chatlanes_sandbox.supervisor.output import ERASE_LINE, Output
from tests.sandbox.calling import PATIENCE_S, ended_when_late, is_alive, wait_until

pytestmark = pytest.mark.slow

#: A part with a child, as a worker has: says when the child is there, and finishes its work when told to stop.
WORKING = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
def finish(*_):
    print("the child lives" if child.poll() is None else "the child died", flush=True)
    child.kill()
    child.wait()
    sys.exit(0)
signal.signal(signal.SIGTERM, finish)
print("working", os.getpid(), child.pid, flush=True)
while True:
    time.sleep(600)
"""
#: A part that ends on SIGTERM, without output.
IDLE = "import time; print('idle', flush=True); time.sleep(600)"
#: One that ends when the file is there.
ENDING = """
import pathlib, time
while not pathlib.Path({gate!r}).exists():
    time.sleep(0.01)
print("I give up", flush=True)
raise SystemExit(1)
"""
#: A worker.
READY_AT_ONCE = "import time; print('chatlanes_sandbox.worker: ready', flush=True); time.sleep(600)"
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("working", flush=True)
time.sleep(600)
"""

SUPERVISE = """
import os, sys
from chatlanes_sandbox.supervisor import supervisor
from chatlanes_sandbox.plan import Part
supervisor.STOP_WITHIN_S = float(sys.argv[1])
fallen = sys.argv[2]
running = supervisor.Supervisor({fallen: lambda: False} if fallen else {}, loading="loading …", ready="ready: go")
for number, code in enumerate(sys.argv[3:]):
    part = Part(f"part{number}", (sys.executable, "-c", code), is_worker="ready" in code)
    running.add(part, dict(os.environ, PYTHONUNBUFFERED="1"))
print("ended first:", running.run(), running.last_words, flush=True)
"""


class Supervised:
    def __init__(self, *codes: str, stop_within_s: float = PATIENCE_S, fallen: str = "") -> None:
        command = [sys.executable, "-c", SUPERVISE, str(stop_within_s), fallen, *codes]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._seen = ""

    def wait_for(self, text: str, times: int = 1) -> None:
        assert self.process.stdout
        with ended_when_late(self.process):
            while self._seen.count(text) < times:
                line = self.process.stdout.readline()
                assert line, f"no {text!r} in:\n{self._seen}"
                self._seen += line

    def said(self, pattern: str) -> re.Match[str]:
        found = re.search(pattern, self._seen)
        assert found
        return found

    def rest(self) -> str:
        """All it said, once it has ended."""
        output, _ = self.process.communicate(timeout=PATIENCE_S)
        return self._seen + str(output)


@pytest.fixture
def supervise() -> Iterator[Any]:
    started: list[Supervised] = []

    def start(*codes: str, **options: Any) -> Supervised:
        started.append(Supervised(*codes, **options))
        return started[-1]

    yield start
    for supervised in started:
        if supervised.process.poll() is None:
            supervised.process.terminate()
        supervised.rest()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_parts_and_lets_them_finish(supervise: Any, how: signal.Signals) -> None:
    running = supervise(WORKING, WORKING)
    running.wait_for("| working", times=2)
    running.process.send_signal(how)
    said = running.rest()
    assert said.count("| the child lives") == 2
    assert "ended first: None" in said


def test_when_one_part_ends_the_others_are_stopped(supervise: Any, tmp_path: Path) -> None:
    gate = tmp_path / "end"
    running = supervise(WORKING, ENDING.format(gate=str(gate)))
    running.wait_for("| working")
    gate.touch()
    said = running.rest()
    assert said.index("part1  | I give up") < said.index("part1 stopped (rc=1)")
    assert "part0  | the child lives" in said
    assert "ended first: part1 I give up" in said


def test_other_workers_start_when_the_first_one_is_ready(supervise: Any) -> None:
    running = supervise(IDLE, READY_AT_ONCE, READY_AT_ONCE)
    running.wait_for("| ready: go")
    running.process.send_signal(signal.SIGTERM)
    said = running.rest()
    steps = ("part1 started", "| loading …", "part2 started", "| ready: go")
    assert sorted(steps, key=said.index) == list(steps)
    assert (said.count("loading …"), said.count("ready: go")) == (1, 1)
    # The line by which a worker says so is not shown
    assert "chatlanes_sandbox.worker" not in said


def test_a_killed_part_is_restarted_without_its_old_children(supervise: Any) -> None:
    running = supervise(WORKING, IDLE)
    running.wait_for("| working")
    first = running.said(r"working (\d+) (\d+)")
    os.kill(int(first[1]), signal.SIGKILL)
    running.wait_for("| working", times=2)
    wait_until(lambda: not is_alive(int(first[2])))
    running.process.send_signal(signal.SIGTERM)
    said = running.rest()
    assert "part0 stopped (rc=-9)" in said
    assert "ended first: None" in said


@pytest.mark.parametrize(
    ("code", "short_lives", "after_s"),
    [(-9, 0, 0), (-9, 1, 0), (0, 1, 0), (-11, 3, 2), (-11, 30, 30), (1, 0, NEVER)],
)
def test_part_restarts_unless_it_ended_with_an_error(code: int, short_lives: int, after_s: float) -> None:
    assert restart_after_s(code, short_lives) == after_s


def test_without_redis_the_other_parts_are_stopped(supervise: Any) -> None:
    said = supervise(IDLE, fallen="redis").rest()
    assert "part0 stopped" in said
    assert "ended first: redis" in said


def test_a_part_that_does_not_stop_in_time_is_killed(supervise: Any) -> None:
    running = supervise(STUBBORN, stop_within_s=0.1)
    running.wait_for("| working")
    running.process.send_signal(signal.SIGINT)
    assert "part0 stopped (rc=-9)" in running.rest()


def in_a_terminal(columns: int, show: Callable[[Output], None]) -> list[str]:
    """The rows of a terminal after this output."""
    reader, writer = os.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    show(Output(writer))
    os.close(writer)
    written = b""
    with suppress(OSError):  # the end of a terminal's output is an error
        while more := os.read(reader, 1 << 16):
            written += more
    os.close(reader)
    rows = written.decode().replace("\r\n", "\n").split("\n")
    return [row.rpartition(ERASE_LINE)[2] for row in rows]


def test_the_status_line_stays_below_other_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")

    def show(output: Output) -> None:
        output.show_status("report", "1 update")
        output.log("a warning")
        output.show_status("report", "2 updates, and more than fits")

    warning, status = in_a_terminal(20, show)
    assert warning.endswith("system | a warning")
    assert status == "2 updates, and more"
    # And it is gone at the end
    assert in_a_terminal(20, lambda output: (show(output), output.show_status("report", "")))[-1] == ""


def test_without_a_terminal_the_status_is_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    output = Output()
    output.show_status("report", "1 update")
    output.show_status("report", "")
    assert capfd.readouterr().out.endswith("report | 1 update\n")


def test_the_output_of_a_part_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")

    def show(output: Output) -> None:
        output.add_name("worker")
        output.say("worker", "no \x1b[2J\x1b]0;owned\x07")
        output.show_status("worker", "\x9b2J")

    line, status = in_a_terminal(80, show)
    assert line.endswith(" | \x1b[0mno " + r"\u001b[2J\u001b]0;owned\u0007")
    assert status == r"\u009b2J"
