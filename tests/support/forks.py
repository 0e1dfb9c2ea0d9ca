"""Starts a process of the project without the CPU seconds that its imports take: a server, which pytest starts once,
has imported Celery and more, and forks itself.

The process is the same as one of `python -m`, except that these modules are imported already: no module of the project
reads the environment when it is imported. Workers with the pool gevent have a server of their own, which has patched
the standard library before. A process for which something else must precede an import (settings of Python, a preloaded
library) is started with `python -m`.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from tests.support import ROOT

#: The modules that a worker imports, except its app.
CELERY = (
    *("celery.app.events", "celery.app.log", "celery.apps.worker", "celery.bin.celery", "celery.concurrency.prefork"),
    *("celery.concurrency.solo", "celery.concurrency.thread", "celery.events.state", "celery.fixups.django"),
    *("celery.worker.autoscale", "celery.worker.components", "celery.worker.consumer", "celery.worker.strategy"),
    *("celery.worker.consumer.delayed_delivery", "kombu.transport.redis"),
    *("celery_lanes", "celery_lanes.fast.strategy", "celery_lanes.monitoring.remote_control"),
)
#: As they are without gevent: the server and the watchers have no event loop.
FORK, SOCKET = os.fork, socket.SocketType
#: Variables that act when Python or an imported module starts.
EARLY = ("PYTHON", "LD_", "OTEL_", "KOMBU_", "TZ")
REQUEST_BYTES = 1_000_000
ENDS_WITHIN_S = 120.0


def start(
    command: Sequence[str],
    directory: Path,
    env: Mapping[str, str],
    output: IO[bytes],
    imported: tuple[str, ...],
    errors: IO[bytes] | None = None,
    given: IO[bytes] | None = None,
) -> Forked | subprocess.Popen[bytes]:
    """Starts a process that leads a session of its own, with its stdout in `output`, its stderr in `errors`, or there
    too, and its stdin from `given`. `imported` are the modules that it has imported already if it is forked;
    `__main__` modules among them can be its command, as a file of the directory can.
    """
    with open(os.devnull, "rb") as nothing:
        files = (given or nothing, output, errors or output)
        if _can_fork(command, directory, env, imported):
            return Forked(command, directory, env, imported, files)
        stdin, stdout, stderr = files
        return subprocess.Popen(
            command, cwd=directory, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
        )


def run(
    command: Sequence[str], directory: Path, env: Mapping[str, str], imported: tuple[str, ...] = CELERY
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, as subprocess.run does, and returns its output."""
    env = {**_early(STARTED_WITH), **env}
    with TemporaryFile() as output, TemporaryFile() as errors:
        ended = start(command, directory, env, output, imported, errors)
        try:
            code = ended.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            ended.kill()
            raise
        texts = [file.read().decode() for file in (output, errors) if file.seek(0) == 0]
    return subprocess.CompletedProcess(command, code, *texts)


def _can_fork(command: Sequence[str], directory: Path, env: Mapping[str, str], imported: tuple[str, ...]) -> bool:
    if sys.platform != "linux" or tuple(command[:2]) != (sys.executable, "-m"):
        return False
    is_known = command[2] == "celery" or f"{command[2]}.__main__" in imported
    if not is_known and not (directory / f"{command[2]}.py").exists():
        return False
    return "eventlet" not in command and _early(env) == _early(STARTED_WITH)


def _early(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(EARLY)}


def python_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Inherited is the code that tests/mutants has changed."""
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), inherited.get("PYTHONPATH")))),
        "PYTHONUNBUFFERED": "1",
    }


#: Before any test changes the environment: what acts early must be the same in the server and in what it forks.
STARTED_WITH = {**os.environ, **python_environment(os.environ)}


class Forked:
    """The part of subprocess.Popen that the tests use. The process leads a session of its own."""

    def __init__(
        self,
        command: Sequence[str],
        directory: Path,
        env: Mapping[str, str],
        imported: tuple[str, ...],
        files: Sequence[IO[bytes]],
    ) -> None:
        """`files`: of its stdin, its stdout and its stderr."""
        request = {"module": command[2], "arguments": list(command[3:]), "cwd": str(directory), "env": dict(env)}
        self.returncode: int | None = None
        self._watch, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            server = _server(imported, "gevent" in command)
            socket.send_fds(server, [json.dumps(request).encode()], [each.fileno() for each in (theirs, *files)])
        self.pid = int(self._watch.recv(100))

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._watch.settimeout(timeout)
            try:
                self.returncode = int(self._watch.recv(100))
            except (BlockingIOError, TimeoutError) as late:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0) from late
            self._watch.close()  # now the process may be forgotten
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _server(imported: tuple[str, ...], is_patched: bool) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        modules = ["gevent", *imported] if is_patched else imported
        command = [sys.executable, "-m", "tests.support.forks", str(theirs.fileno()), *modules]
        running = subprocess.Popen(
            command, cwd=ROOT, env=STARTED_WITH, pass_fds=[theirs.fileno()], start_new_session=True
        )
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, REQUEST_BYTES)
    atexit.register(running.wait)
    atexit.register(ours.close)  # the first of the two: the server ends when nobody can ask it
    return ours


def _serve(control: Any) -> dict[str, Any] | None:
    """Returns a request in the process that is to execute it, and None when pytest has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a watcher
    while True:
        received, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES, 4)
        if not received:
            return None
        if FORK() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _watched(json.loads(received), *descriptors)
        for each in descriptors:
            os.close(each)


def _watched(request: dict[str, Any], watch_fd: int, *file_fds: int) -> dict[str, Any]:
    """Forks the process, in which this returns. The watcher reports its end, and keeps its process id until the test
    knows.
    """
    watch = SOCKET(fileno=watch_fd)
    if pid := FORK():
        for each in file_fds:
            os.close(each)  # otherwise a reader of the output would not see its end
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ended
        watch.send(str(ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status).encode())
        watch.recv(1)
        os._exit(0)
    os.setsid()
    os.chdir(request["cwd"])
    for target, each in enumerate(file_fds):
        os.dup2(each, target)
        os.close(each)
    os.environ.clear()
    os.environ.update(request["env"])
    watch.send(str(os.getpid()).encode())
    watch.close()
    return request


if __name__ == "__main__":
    for name in sys.argv[2:]:
        if name == "gevent":
            import_module("gevent.monkey").patch_all()
        import_module(name)
        if name.endswith(".__main__"):
            del sys.modules[name]  # runpy executes it
    if started := _serve(SOCKET(fileno=int(sys.argv[1]))):
        sys.path[0] = started["cwd"]
        sys.argv = ["", *started["arguments"]]
        runpy.run_module(started["module"], run_name="__main__", alter_sys=True)
