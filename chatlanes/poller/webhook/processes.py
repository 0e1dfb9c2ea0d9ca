"""Several receiver processes on one listening socket.

Guarantees that a process that dies is replaced, that all end after the stop request, and that none outlives this
process: each has one end of a pipe whose other end only this process has.
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

CHECK_EVERY_S = 0.2
#: A process that dies at its start must not keep the machine busy with restarts.
RESTART_AFTER_S = 1.0
#: Longer than a process takes to answer the requests in progress.
STOP_WITHIN_S = 10.0
#: Exit codes after which a restart would fail too.
FINAL = (1, 2)


class ReceiverProcesses:
    """Each process is started with these `options` and --socket."""

    def __init__(self, count: int, options: Sequence[str], listening: socket.socket, stop: Stop) -> None:
        self._count = count
        program = [sys.executable, "-m", "chatlanes.poller", "webhook"]
        self._command = [*program, *options, f"--socket={listening.fileno()}"]
        self._listening = listening
        self._stop = stop
        self._processes: list[subprocess.Popen[bytes]] = []

    def run(self) -> int:
        """Runs until the stop request, or until a process ends with a FINAL code. Returns the exit code."""
        try:
            self._processes = [self._start() for _ in range(self._count)]
            return self._supervise()
        except Stopping:
            return 0
        finally:
            self._end()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, pass_fds=[self._listening.fileno()], stdin=subprocess.PIPE)

    def _supervise(self) -> int:
        """Raises Stopping."""
        while True:
            self._stop.sleep(CHECK_EVERY_S)
            for place, process in enumerate(self._processes):
                code = process.poll()
                if code in FINAL:
                    return int(code)
                if code is not None:
                    log.warning("a receiver process exited with %d: starting another one", code)
                    self._stop.sleep(RESTART_AFTER_S)
                    _close_pipe(process)
                    self._processes[place] = self._start()

    def _end(self) -> None:
        """Sends SIGTERM and closes the pipe: each of them stops a process, in case the other one does not."""
        for process in self._processes:
            process.terminate()
            _close_pipe(process)
        give_up_at_s = time.monotonic() + STOP_WITHIN_S
        for process in self._processes:
            try:
                process.wait(max(give_up_at_s - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                log.warning("a receiver process did not stop in time and was killed; Telegram sends its updates again")
                process.kill()
                process.wait()


def inherited(descriptor: int, stop: Stop) -> socket.socket:
    """In a process of `ReceiverProcesses`: the socket. Requests the stop when the parent process has ended."""
    Thread(target=_stop_with_parent, args=(stop,), name="parent", daemon=True).start()
    return socket.socket(fileno=descriptor)


def _stop_with_parent(stop: Stop) -> None:
    while os.read(0, 1):
        pass
    stop.request()


def _close_pipe(process: subprocess.Popen[bytes]) -> None:
    if process.stdin:
        process.stdin.close()
