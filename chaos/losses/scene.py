"""Two pollers, two workers, a master and its replica, under load, until one blow hits the server.

The parts reach the server through a link, which is led to whichever server replaces it. All that was started is ended.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from celery_lanes.embedded_server import Server, start_server
from celery_lanes.monitoring import inspection
from celery_lanes.protocol import Store
from celery_lanes.protocol.verbs import History
from chaos.faults.power_failure import traced
from chaos.faults.proxy import HOST, Link, Network
from chaos.losses.judge import Outcome
from chaos.systems.definitions import PYTHON
from chaos.systems.feed import Feed
from chaos.systems.processes import Processes
from chatlanes_sandbox import simulator
from chatlanes_sandbox.simulator import Simulator

#: Reached only if something is broken.
WITHIN_S = 180.0
#: Updates per second, more than the workers can run: some wait when the blow comes.
RATE = 40.0
LEASE_S = 3.0
#: Every process has compared Redis with what it knew after this time (an idle poller: every 10 s).
COMPARED_WITHIN_S = 12.0
MASTER, TRACE = "master", "trace"
DISK = "16m"
REPORTED = "Redis LOST data"
_WORKER = (PYTHON, "-m", "celery", "-A", "chatlanes", "worker", "-l", "INFO", "--without-mingle")
PARTS = {
    "poller": [PYTHON, "-m", "chatlanes.poller"],
    "standby": [PYTHON, "-m", "chatlanes.poller"],
    "threads": [*_WORKER, "-n", "threads@losses", "-P", "threads", "-c", "4"],
    "prefork": [*_WORKER, "-n", "prefork@losses", "-P", "prefork", "-c", "2"],
}


@dataclass
class Scene:
    """`front`: the link of the parts to Redis. `behind`: that of the replica to the master."""

    folder: Path
    telegram: Simulator
    network: Network
    front: Link
    behind: Link
    processes: Processes
    master: Server
    feed: Feed
    replicas: int
    replica: Server | None = None
    servers: list[Server] = field(default_factory=list)

    @property
    def confirmed(self) -> int:
        return int(self.telegram.stats()["confirmed"])

    def confirm(self, more: int) -> None:
        """Waits until this many more updates are confirmed to Telegram."""
        wanted = self.confirmed + more
        until(lambda: self.confirmed >= wanted, f"{more} more updates are confirmed")

    def logged(self, text: str) -> bool:
        return any(text in (self.folder / f"{name}.log").read_text() for name in PARTS)

    def start(self, name: str, *extra: str, port: int = 0) -> Server:
        server = start_server(self.folder / name, port=port, extra=extra)
        self.servers.append(server)
        return server

    def end_servers(self) -> None:
        for server in self.servers:
            server.kill()

    def follow(self, *extra: str) -> Server:
        """Starts a replica of the master and waits until it has all its data."""
        self.replica = self.start("replica", "--replicaof", f"{HOST} {self.behind.port}", *extra)
        with Redis(port=self.master.port) as client:
            until(lambda: _followers(client) == 1, "the replica follows")
        return self.replica

    def promote(self) -> Server:
        """Kills the master, and lets the replica take its place."""
        assert self.replica is not None  # noqa: S101 - the blow has started it
        self.master.kill()
        with Redis(port=self.replica.port) as client:
            client.replicaof("NO", "ONE")
        return self.replica

    def lead_to(self, server: Server) -> None:
        self.network.submit(lambda: self.front.lead_to(server.port))


def history_of(server: Server) -> History:
    with Redis(port=server.port) as client:
        return Store(client).look()


def history_in(folder: Path, scratch: Path) -> History:
    """What the append-only file of a dead server has."""
    shutil.copytree(folder, scratch, ignore=shutil.ignore_patterns("*.log", "*lock*"))
    with start_server(scratch) as server:
        return history_of(server)


@contextmanager
def scene(folder: Path, replicas: int = 0, *, is_traced: bool = False, is_small: bool = False) -> Iterator[Scene]:
    """Everything runs, and updates arrive. `is_traced`: strace records what the master writes and syncs (TRACE).
    `is_small`: the master has a small disk of its own.
    """
    folder.mkdir(parents=True)
    with ExitStack() as ends:
        if is_small:
            ends.enter_context(_small_disk(folder / MASTER))
        telegram = ends.enter_context(simulator.start("1:CHAOS"))
        network = Network()
        ends.callback(network.end)
        master = start_server(folder / MASTER, binary=traced(folder, folder / TRACE) if is_traced else None)
        ends.callback(master.kill)
        front, behind = (network.link(master.port, arrives_late=True) for _ in range(2))
        environment = _environment(telegram, front, replicas)
        processes = Processes(PARTS, dict.fromkeys(PARTS, environment), folder)
        ends.callback(processes.end)
        feed = Feed(telegram, seed=1, rate=RATE)
        running = Scene(folder, telegram, network, front, behind, processes, master, feed, replicas)
        ends.callback(running.end_servers)
        if replicas:
            running.follow()
        for name in PARTS:
            processes.start(name)
        feed.start()
        with Redis(port=master.port) as client:
            until(lambda: _all_work(client), "both workers have swept and settled")
        try:
            yield running
        finally:
            feed.end()


def outcome(running: Scene, before: History, after: History, confirmed: int, server: Server) -> Outcome:
    """Leads the parts to the server that takes over, and waits until all that it can run has run."""
    running.lead_to(server)
    running.confirm(round(3 * RATE))
    time.sleep(COMPARED_WITHIN_S)
    running.feed.end()
    with Redis(port=server.port) as client:
        until(lambda: _is_calm(running, client), "all updates are done")
        losses = [(loss.first, loss.last) for loss in inspection.losses(client)]
    answered = {int(call["params"]["text"]) for call in running.telegram.calls("sendMessage") if call["ok"]}
    logs = {name: (running.folder / f"{name}.log").read_text() for name in PARTS}
    return Outcome(
        before=before,
        after=after,
        confirmed=confirmed,
        never=frozenset(range(1, running.feed.sent + 1)) - answered,
        losses=losses,
        lines={name: [line for line in log.splitlines() if REPORTED in line] for name, log in logs.items()},
        checked=_checked(running, server),
    )


def _all_work(client: Redis) -> bool:
    return len(inspection.workers(client)) == 2 and Store(client).look().settled > 0


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "chaos", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _is_calm(running: Scene, client: Redis) -> bool:
    stats = running.telegram.stats()
    with suppress(RedisError):
        return bool(stats["confirmed"] == stats["added"]) and Store(client).pending() == 0
    return False


def _checked(running: Scene, server: Server) -> int:
    """How many losses `lanes check` reports."""
    environment = {**running.processes.environments["poller"], "REDIS_URL": server.url}
    command = [PYTHON, "-m", "chatlanes", "lanes", "check"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return len(re.findall("^WRONG loss", found.stdout, re.MULTILINE))


def _environment(telegram: Simulator, front: Link, replicas: int) -> dict[str, str]:
    return {
        **os.environ,
        "BOT_TOKEN": telegram.token,
        "BOT_API_URL": telegram.url,
        "BOT": "chaos.losses.bot:handle",
        "REDIS_URL": f"redis://{HOST}:{front.port}/0",
        "LEASE_SECONDS": str(LEASE_S),
        "DURABLE_REPLICAS": str(replicas),
    }


def _followers(client: Redis) -> int:
    found = client.info("replication")
    return sum(
        each["state"] == "online" for name, each in found.items() if name.startswith("slave") and isinstance(each, dict)
    )


def until(condition: Callable[[], object], what: str) -> None:
    give_up_at_s = time.monotonic() + WITHIN_S
    while not condition():
        if time.monotonic() > give_up_at_s:
            raise TimeoutError(f"after {WITHIN_S:.0f} s it is not true that {what}")
        time.sleep(0.05)
