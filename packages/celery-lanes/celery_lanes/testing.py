"""Workers for the tests of an app with lanes: real processes, which a test can freeze and kill.

Guarantees that none of a worker's processes is left after `end`, and that they end with the process of the tests,
except those that are frozen then.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from celery._state import _get_active_apps

from celery_lanes.embedded_server import terminate_with_parent
from celery_lanes.errors import LanesError

READY = " ready."
#: Generous: only a failing test waits this long.
START_WITHIN_S = 60.0
STOP_WITHIN_S = 10.0


class Worker:
    """`celery -A APP worker` with more `arguments`, in the folder of the tests. Returns when it runs tasks.

    Raises LanesError, with its log, if it does not start.
    """

    def __init__(self, app: str, arguments: tuple[str, ...], name: str, log_file: Path) -> None:
        self._log_file = log_file
        command = [sys.executable, "-m", "celery", "-A", app, "worker", "--loglevel", "INFO", "--concurrency", "2"]
        command += ["--hostname", f"{name}@%h", "--without-mingle", *arguments]
        with log_file.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
                preexec_fn=terminate_with_parent(),
            )
        give_up_at = time.monotonic() + START_WITHIN_S
        while READY not in self.log:
            if self.process.poll() is not None or time.monotonic() > give_up_at:
                self.end()
                raise LanesError(f"the worker of {app} did not start:\n{self.log}")
            time.sleep(0.02)

    @property
    def log(self) -> str:
        """Its log and its output."""
        return self._log_file.read_text(errors="replace")

    def stop(self) -> None:
        """Warm shutdown, as by a deploy: running tasks finish. Raises subprocess.TimeoutExpired after 10 s."""
        self.process.terminate()
        self.process.wait(STOP_WITHIN_S)

    def end(self) -> None:
        """Stop it, even if it is frozen or hangs."""
        if self.process.poll() is None:
            thaw(self)
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                kill(self)


def kill(worker: Worker) -> None:
    """SIGKILL for all processes of a worker at once, like a power failure."""
    _signal(worker, signal.SIGKILL)
    worker.process.wait()


def freeze(worker: Worker) -> None:
    """Stop all processes of a worker, as a suspended machine does. Its leases expire meanwhile. Raises LanesError if it
    has ended.
    """
    if worker.process.poll() is not None:
        raise LanesError("the worker has ended, so it cannot be frozen")
    _signal(worker, signal.SIGSTOP)
    os.waitid(os.P_PID, worker.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def thaw(worker: Worker) -> None:
    """Continue a frozen worker."""
    _signal(worker, signal.SIGCONT)


def _signal(worker: Worker, number: signal.Signals) -> None:
    os.killpg(worker.process.pid, number)


def forget_connections() -> None:
    """Let the apps of this process connect to the server of their environment, even if they have used another one."""
    for app in _get_active_apps():
        app._pool = app._backend_cache = None
        vars(app._local).pop("backend", None)
        if "amqp" in vars(app):
            app.amqp._producer_pool = None
        if hasattr(app, "lanes"):
            vars(app.lanes).pop("store", None)
