"""Several receiver processes on one listening socket.

Guarantees that a process that dies is replaced, that all end when this one is asked to, and that none outlives it: each
holds one end of a pipe whose other end only this process has.
"""

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from threading import Thread

from chatlanes.poller.runtime import Stop, Stopping

log = logging.getLogger("poller")

LOOK_EVERY_S = 0.2
#: One that dies as soon as it runs must not keep the machine busy with its starts.
AGAIN_AFTER_S = 1.0
#: Longer than one takes to answer what is under way.
STOP_WITHIN_S = 10.0
#: The exit codes with which a process says that another one would fare no better.
FINAL = (1, 2)


class ReceiverProcesses:
    """`command` is what each is started with, with --socket behind it."""

    def __init__(self, count: int, command: Sequence[str], listening: socket.socket, stop: Stop) -> None:
        self._count = count
        self._command = [*command, f"--socket={listening.fileno()}"]
        self._listening = listening
        self._stop = stop
        self._processes: list[subprocess.Popen[bytes]] = []

    def run(self) -> int:
        """Until asked to stop, or until one ends with a code that says that all will. Gives the exit code."""
        try:
            self._processes = [self._start() for _ in range(self._count)]
            return self._look_after()
        except Stopping:
            return 0
        finally:
            self._end()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, pass_fds=[self._listening.fileno()], stdin=subprocess.PIPE)

    def _look_after(self) -> int:
        """Raises Stopping."""
        while True:
            self._stop.sleep(LOOK_EVERY_S)
            for place, process in enumerate(self._processes):
                code = process.poll()
                if code in FINAL:
                    return int(code)
                if code is not None:
                    log.warning("a receiver's process ended with %d: starting another", code)
                    self._stop.sleep(AGAIN_AFTER_S)
                    _hang_up(process)
                    self._processes[place] = self._start()

    def _end(self) -> None:
        """They stop when they are asked to, or when the pipe to them is closed: both, in case one is not heard."""
        for process in self._processes:
            process.terminate()
            _hang_up(process)
        give_up_at_s = time.monotonic() + STOP_WITHIN_S
        for process in self._processes:
            try:
                process.wait(max(give_up_at_s - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                log.warning("a receiver's process did not stop in time: killed; Telegram repeats what it held")
                process.kill()
                process.wait()


def receiver_command(verbose: bool, quiet: bool) -> list[str]:
    said = {"--verbose": verbose, "--quiet": quiet}
    return [
        sys.executable,
        "-m",
        "chatlanes.poller",
        "webhook",
        *(option for option, is_said in said.items() if is_said),
    ]


def inherited(descriptor: int, stop: Stop) -> socket.socket:
    """In a process of `ReceiverProcesses`: the socket. Asks for the stop when the process that started it is gone."""
    Thread(target=_stop_with_parent, args=(stop,), name="parent", daemon=True).start()
    return socket.socket(fileno=descriptor)


def _stop_with_parent(stop: Stop) -> None:
    while os.read(0, 1):
        pass
    stop.ask()


def _hang_up(process: subprocess.Popen[bytes]) -> None:
    if process.stdin:
        process.stdin.close()
