"""Drills after a chaos run, separate from it because they destroy the state to check: two deployments, an empty
replica.

Each returns one sentence per failure, and ends the processes that it started.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from redis import Redis

from celery_lanes.embedded_server import free_port
from celery_lanes.monitoring import inspection
from chaos.systems.definitions import System
from chaos.systems.processes import Processes

WITHIN_S = 60.0
#: Every process has seen a state of Redis after this time (celery_lanes/protocol/data_loss.py).
SEEN_WITHIN_S = 3.0
STRANGER = "2:CHAOS"
REFUSED, REPORTED = b"this database is in use by another deployment", b"Redis LOST data"


def two_deployments(system: System, processes: Processes, folder: Path) -> list[str]:
    """A poller and a worker of another bot refuse to start."""
    wrong = []
    for name in (next(iter(system.pollers)), next(iter(system.workers))):
        log = folder / f"stranger-{name}.log"
        # Its own port: a receiver whose port is taken reports only that.
        environment = {**processes.environments[name], "BOT_TOKEN": STRANGER, "WEBHOOK_PORT": str(free_port())}
        with log.open("wb") as file:
            process = subprocess.Popen(system.parts[name], env=environment, stdout=file, stderr=file)
        try:
            code = process.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = None
        if code != 1 or REFUSED not in log.read_bytes():
            wrong.append(f"a {name} of another bot was not refused: exit code {code}")
    return wrong


def empty_replica(system: System, processes: Processes, folder: Path, client: Redis) -> list[str]:
    """Empties the database, as if an empty replica were promoted: this must be reported, and recorded as one loss.

    Schedules append meanwhile, so the loss is known up to a message that was appended shortly before.
    """
    seen = _appended(client)
    ends_s = time.monotonic() + SEEN_WITHIN_S
    all_have_swept = _until(lambda: _have_swept(system, processes, client))
    time.sleep(max(ends_s - time.monotonic(), 0.0))
    appended = _appended(client)
    logs = {name: folder / f"{name}.log" for name in system.parts}
    sizes = {name: log.stat().st_size for name, log in logs.items()}
    client.flushall()

    def silent(names: dict[str, list[str]]) -> list[str]:
        return [name for name in names if REPORTED not in logs[name].read_bytes()[sizes[name] :]]

    # One poller leads; the other has seen no updates that could be missing. An idle receiver does not check.
    enough = len(system.pollers) if system.receives else len(system.pollers) - 1
    reported = _until(lambda: not silent(system.workers) and len(silent(system.pollers)) <= enough)
    wrong = [] if reported else [f"the loss was not reported by {', '.join(silent(system.parts))}"]
    if not all_have_swept:
        wrong.append("a worker did not sweep before the drill")
    losses = [(loss.first, loss.last) for loss in inspection.losses(client)]
    if len(losses) != 1 or losses[0][0] != 1 or not seen <= losses[0][1] <= appended:
        wrong.append(f"expected one recorded loss, of updates 1 to {seen} – {appended}, but found {losses}")
    return wrong


def _appended(client: Redis) -> int:
    return inspection.counts(client).get("appended", 0)


def _have_swept(system: System, processes: Processes, client: Redis) -> bool:
    """True if every worker has swept and no restart is pending."""
    processes.restart_ended()
    alive = {int(holder.split(":")[1]) for holder in inspection.workers(client)}
    return processes.is_whole and {processes.pid(name) for name in system.workers} <= alive


def _until(condition: Callable[[], bool]) -> bool:
    ends_s = time.monotonic() + WITHIN_S
    while not condition():
        if time.monotonic() > ends_s:
            return False
        time.sleep(0.1)
    return True
