"""What is tried when all is calm, because it leaves nothing to judge behind: two deployments, and an empty replica.

Promises a sentence for each thing that was not as it must be, and to end what it started.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from redis import Redis

from chaos.fleet import Fleet
from chaos.systems import System
from chatlanes.lanes.monitoring import inspection
from chatlanes.sandbox.ports import free_port

WITHIN_S = 60.0
STRANGER = "2:CHAOS"
REFUSED, REPORTED = b"this database is in use by another deployment", b"Redis LOST data"


def two_deployments(system: System, fleet: Fleet, folder: Path) -> list[str]:
    """A poller and a worker of another bot refuse to start."""
    wrong = []
    for name in (next(iter(system.pollers)), next(iter(system.workers))):
        log = folder / f"stranger-{name}.log"
        # A port of its own: a receiver that finds its port taken says only that.
        environment = {**fleet.environments[name], "BOT_TOKEN": STRANGER, "WEBHOOK_PORT": str(free_port())}
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


def empty_replica(system: System, fleet: Fleet, folder: Path, client: Redis) -> list[str]:
    """The database is emptied, as when an empty replica is promoted: that is reported, and recorded as one loss."""
    all_have_looked = _until(lambda: _have_looked(system, fleet, client))
    appended = inspection.counts(client).get("appended", 0)
    logs = {name: folder / f"{name}.log" for name in system.parts}
    sizes = {name: log.stat().st_size for name, log in logs.items()}
    client.flushall()

    def silent(names: dict[str, list[str]]) -> list[str]:
        return [name for name in names if REPORTED not in logs[name].read_bytes()[sizes[name] :]]

    # Of the pollers one leads; the other has seen nothing that could be missing. An idle receiver does not look.
    enough = len(system.pollers) if system.receives else len(system.pollers) - 1
    reported = _until(lambda: not silent(system.workers) and len(silent(system.pollers)) <= enough)
    wrong = [] if reported else [f"the loss was not reported by {', '.join(silent(system.parts))}"]
    if not all_have_looked:
        wrong.append("a worker gave no sign of life when all was calm")
    losses = [(loss.first, loss.last) for loss in inspection.losses(client)]
    if losses != [(1, appended)]:
        wrong.append(f"one loss of updates 1 to {appended} was expected to be recorded, and these are: {losses}")
    return wrong


def _have_looked(system: System, fleet: Fleet, client: Redis) -> bool:
    """Every worker has swept, and will not be started again."""
    fleet.tend()
    alive = {int(holder.split(":")[1]) for holder in inspection.workers(client)}
    return fleet.is_whole and {fleet.pid(name) for name in system.workers} <= alive


def _until(condition: Callable[[], bool]) -> bool:
    ends_s = time.monotonic() + WITHIN_S
    while not condition():
        if time.monotonic() > ends_s:
            return False
        time.sleep(0.1)
    return True
