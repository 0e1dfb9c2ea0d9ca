"""The blows. Each returns the outcome of its run; `may_lose` says whether confirmed updates may be lost."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from redis import Redis

from chaos.faults.power_failure import can_trace, unsynced
from chaos.faults.proxy import HOST
from chaos.losses.judge import Outcome
from chaos.losses.scene import MASTER, TRACE, Scene, history_in, history_of, outcome, until

#: Confirmed before the blow, and while the replica is behind.
BEFORE, BEHIND = 150, 60
#: Cut from the end of an append-only file; an append of one update has about a kilobyte.
TORN_BYTES = 30_001
#: How long the disk stays full, is slow, and how long each sync then takes.
FULL_S, SLOW_S, SYNC_TAKES_MS = 4.0, 10.0, 500


@dataclass(frozen=True)
class Blow:
    """`needs`: "strace", or "root" for a disk of its own."""

    strike: Callable[[Scene], Outcome]
    may_lose: bool
    replicas: int = 0
    is_traced: bool = False
    is_small: bool = False
    needs: str = ""

    @property
    def obstacle(self) -> str:
        """Why it cannot be done on this machine; empty: it can."""
        if self.needs == "strace" and not can_trace():
            return "strace is not installed, or may not trace here"
        return "only root may mount a disk" if self.needs == "root" and os.geteuid() else ""


def torn_write(running: Scene) -> Outcome:
    """The server dies in the middle of a write that it had not acknowledged."""
    running.confirm(BEFORE)
    running.master.kill()
    with _last_file(running).open("ab") as file:
        file.write(b"*1\r\n$5\r\nMULTI\r\n*4\r\n$4\r\nHSET\r\n$12\r\nlanes:")
    return _restarted(running)


def torn_end(running: Scene) -> Outcome:
    """The end of the file is missing, although the disk had acknowledged it."""
    running.confirm(BEFORE)
    running.master.kill()
    file = _last_file(running)
    before = history_in(running.folder / MASTER, running.folder / "whole")
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - TORN_BYTES)
    server = running.start(MASTER, port=running.master.port)
    return outcome(running, before, history_of(server), running.confirmed, server)


def behind(running: Scene) -> Outcome:
    """A replica is promoted that had received nothing for a while, and nothing waited for it."""
    running.follow()
    running.confirm(BEFORE)
    running.network.submit(running.behind.hole)
    running.confirm(BEHIND)
    return _promoted(running)


def behind_durable(running: Scene) -> Outcome:
    """The same with DURABLE_REPLICAS=1: nothing is confirmed meanwhile."""
    running.confirm(BEFORE)
    running.network.submit(running.behind.hole)
    until(lambda: running.logged("replicas (DURABLE_REPLICAS) confirmed it"), "the poller waits for the replica")
    return _promoted(running)


def empty(running: Scene) -> Outcome:
    """A replica is promoted that has never received anything."""
    running.confirm(BEFORE)
    running.replica = running.start("replica")
    return _promoted(running)


def full_disk(running: Scene) -> Outcome:
    """The disk fills, the server exits because it cannot keep its promise, and starts again when there is room."""
    running.confirm(BEFORE)
    ballast = running.folder / MASTER / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:  # no space left on device
        while True:
            file.write(bytes(1 << 12))
    until(lambda: not running.master.is_running(), "the server has exited")
    time.sleep(FULL_S)
    ballast.unlink()
    return _restarted(running)


def slow_disk(running: Scene) -> Outcome:
    """Each sync takes half a second for a while."""
    running.confirm(BEFORE)
    slow = f"--inject=fdatasync,fsync:delay_enter={SYNC_TAKES_MS}ms"
    strace = subprocess.Popen(["strace", "-f", "-q", "-o", os.devnull, slow, "-p", str(running.master.pid)])
    try:
        time.sleep(SLOW_S)
    finally:
        strace.terminate()
        strace.wait()
    now = history_of(running.master)
    return outcome(running, now, now, running.confirmed, running.master)


def no_sync(running: Scene) -> Outcome:
    """`CONFIG SET appendfsync no`, which a poller must notice; then a power failure: what was not synced is gone."""
    running.confirm(BEFORE)
    with Redis(port=running.master.port) as client:
        client.config_set("appendfsync", "no")
    until(lambda: running.logged("the Redis server or its settings changed"), "a poller warns")
    running.confirm(BEHIND)
    running.master.kill()
    trace = running.folder / TRACE
    until(lambda: "+++ killed by SIGKILL" in trace.read_text(), "the trace is whole")
    before = history_in(running.folder / MASTER, running.folder / "whole")
    for path, size in unsynced(trace.read_text()).items():
        os.truncate(path, Path(path).stat().st_size - size)
    server = running.start(MASTER, port=running.master.port)
    return outcome(running, before, history_of(server), running.confirmed, server)


BLOWS = {
    "slow disk": Blow(slow_disk, may_lose=False, needs="strace"),
    "full disk": Blow(full_disk, may_lose=False, is_small=True, needs="root"),
    "torn write": Blow(torn_write, may_lose=False),
    "torn end": Blow(torn_end, may_lose=True),
    "fsync off, power failure": Blow(no_sync, may_lose=True, is_traced=True, needs="strace"),
    "replica behind": Blow(behind, may_lose=True),
    "replica behind, DURABLE_REPLICAS=1": Blow(behind_durable, may_lose=False, replicas=1),
    "empty replica": Blow(empty, may_lose=True),
}


def _promoted(running: Scene) -> Outcome:
    server = running.promote()
    if running.replicas:
        running.start("second", "--replicaof", f"{HOST} {server.port}")
    before = history_in(running.folder / MASTER, running.folder / "dead")
    return outcome(running, before, history_of(server), running.confirmed, server)


def _restarted(running: Scene) -> Outcome:
    """The file is as it was: the same server starts again."""
    server = running.start(MASTER, port=running.master.port)
    now = history_of(server)
    return outcome(running, now, now, running.confirmed, server)


def _last_file(running: Scene) -> Path:
    return max((running.folder / MASTER / "appendonlydir").glob("*.incr.aof"), key=lambda path: path.stat().st_mtime)
