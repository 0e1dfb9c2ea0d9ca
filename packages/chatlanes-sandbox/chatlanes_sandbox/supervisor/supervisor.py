"""Runs several processes: shows their output, restarts those that were killed, stops all when one fails.

SIGTERM goes to the main process of each part, which gets time to finish its work and is then killed. Workers that
cannot start wait until the bot is fixed.
"""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from chatlanes_sandbox.plan import Part
from chatlanes_sandbox.supervisor.child_process import NEVER, ChildProcess, ManagedPart
from chatlanes_sandbox.supervisor.import_check import ImportCheck
from chatlanes_sandbox.supervisor.output import OWN_NAME, Output
from chatlanes_sandbox.worker import READY

#: Time for workers to finish running handlers; longer ones run again after the next start.
STOP_WITHIN_S = 30.0
#: Between two checks for parts that have ended or are due.
CHECK_EVERY_S = 0.1


class Supervisor:
    """`foundations` are servers that the caller starts and stops: all parts stop when one of them has ended.

    The first worker starts at once and the others when it is ready, so that the bot is imported by one process at a
    time until it answers. `loading` and `ready` are logged when the first worker starts, and when it is ready.
    """

    def __init__(
        self,
        foundations: Mapping[str, Callable[[], bool]],
        import_check: ImportCheck | None = None,
        *,
        loading: str = "",
        ready: str = "",
    ) -> None:
        self._foundations = foundations
        self._import_check = import_check
        self._loading, self._ready = loading, ready
        self.last_words = ""
        self._output = Output()
        self._parts: dict[str, ManagedPart] = {}
        self._selector = selectors.DefaultSelector()
        self._signal: int | None = None
        self._is_stopping = False
        self._kill_at_s = NEVER
        self._ended_first: str | None = None

    def add(self, part: Part, environment: Mapping[str, str]) -> None:
        self._output.add_name(part.name)
        waits = part.is_worker and bool(self._workers)
        self._parts[part.name] = ManagedPart(part, environment, start_at_s=NEVER if waits else 0.0)

    def run(self) -> str | None:
        """Until SIGINT, SIGTERM, or the end of one part. Returns the name of the part that ended by itself."""
        with self._signals():
            while not self._is_stopping or self._any_runs():
                self._start_due_parts()
                self._listen()
                self._check_parts()
        if self._import_check:
            self._import_check.close()
        self._selector.close()
        return self._ended_first

    # ── one round ──

    def _start_due_parts(self) -> None:
        for name, managed in self._parts.items():
            if managed.is_due and not self._is_stopping:
                running = managed.start()
                self._selector.register(running, selectors.EVENT_READ, name)
                self._output.log(f"{name} started (pid={running.pid})")
                if managed.part.is_worker and self._loading:
                    self._output.log(self._loading)
                    self._loading = ""

    def _listen(self) -> None:
        for key, _ in self._selector.select(CHECK_EVERY_S):
            running: Any = key.fileobj
            lines = running.lines()
            if lines is None:
                self._selector.unregister(running)
            else:
                self._show(key.data, lines)

    def _check_parts(self) -> None:
        for name, managed in self._parts.items():
            code = managed.running.ended() if managed.running else None
            if managed.running and code is not None:
                self._read_last_lines(name, managed.running)
                self._output.log(f"{name} stopped (rc={code})")
                self._handle_exit(name, managed, managed.running, code)
        if self._signal is not None and not self._is_stopping:
            self._output.log(f"{signal.Signals(self._signal).name} received")
            self._stop(None)
        ended = next((name for name, is_running in self._foundations.items() if not is_running()), None)
        if ended:
            self._stop(ended)
        if time.monotonic() > self._kill_at_s:
            self._kill()
        if self._import_check and not self._is_stopping:
            self._check_import(self._import_check)

    def _read_last_lines(self, name: str, running: ChildProcess) -> None:
        """The output between the last read and the exit."""
        if running in [key.fileobj for key in self._selector.get_map().values()]:
            self._selector.unregister(running)
            self._show(name, running.lines() or [])

    def _show(self, name: str, lines: list[str]) -> None:
        if self._parts[name].part.is_status:
            self._output.show_status(name, lines[-1] if lines else "")
            return
        self._output.say(name, *(line for line in lines if line != READY))
        if READY in lines and not self._is_stopping:
            self._worker_is_ready(name)

    def _worker_is_ready(self, name: str) -> None:
        if self._import_check:
            self._import_check.worker_ready()
        for managed in self._workers.values():
            if not managed.running and managed.start_at_s == NEVER:
                managed.restart()
        self._start_due_parts()
        if self._ready:
            self._output.log(self._ready)
            self._ready = ""

    def _handle_exit(self, name: str, managed: ManagedPart, running: ChildProcess, code: int) -> None:
        restarts = managed.handle_exit(code)
        if self._is_stopping or restarts:
            return
        if managed.part.is_worker and self._import_check:  # it stays down until the bot is fixed
            self._import_check.worker_failed(name, list(running.said), self._output)
        else:  # the others cannot work without it
            self.last_words = next((line for line in reversed(running.said) if line.strip()), "")
            self._stop(name)

    @property
    def _workers(self) -> dict[str, ManagedPart]:
        return {name: managed for name, managed in self._parts.items() if managed.part.is_worker}

    def _any_runs(self) -> bool:
        return any(managed.running for managed in self._parts.values())

    # ── the page, and the bot ──

    def _check_import(self, import_check: ImportCheck) -> None:
        workers = self._workers
        actions = import_check.poll(workers, self._output)
        for name in actions.kill & workers.keys():
            running = workers[name].running
            if running:
                self._output.log(f"killing {name} (pid {running.pid}) on request of the page")
                workers[name].kill()
        if actions.restart:
            for name, managed in workers.items():
                managed.restart()
                if managed.running:
                    self._terminate(name, managed.running)

    # ── the end ──

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def received(number: int, _: object) -> None:
            self._signal = number  # nothing else here: a signal may interrupt a start

        before = {number: signal.signal(number, received) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, because_of: str | None) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        self._ended_first = because_of
        self._output.show_status(OWN_NAME, "")
        self._kill_at_s = time.monotonic() + STOP_WITHIN_S
        for name, managed in self._parts.items():
            if managed.running:
                self._terminate(name, managed.running)

    def _terminate(self, name: str, running: ChildProcess) -> None:
        self._output.log(f"sending SIGTERM to {name} (pid {running.pid})")
        running.terminate()

    def _kill(self) -> None:
        self._kill_at_s = NEVER
        for name, managed in self._parts.items():
            if managed.running:
                self._output.log(f"sending SIGKILL to {name} (pid {managed.running.pid})")
                managed.running.kill()
