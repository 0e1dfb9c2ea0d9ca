"""Describes the machine and the software of a measurement."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from redis import Redis

from bench.measure.harness import ROOT, Harness

PACKAGES = ("celery", "kombu", "redis")
FSYNCS = 50


def describe(harness: Harness) -> dict[str, Any]:
    """`load` is the load average of the last minute when the bench starts: the load by other programs."""
    with harness.server("machine") as url, Redis.from_url(url) as client:
        server = client.info("server")
    return {
        "processor": processor(),
        "processors": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "server": f"{server.get('server_name', 'redis')} {server.get('valkey_version', server['redis_version'])}",
        "fsync_ms": round(_fsync_ms(harness.directory), 3),
        "load": round(os.getloadavg()[0], 2),
    }


def line(machine: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    return (
        f"{machine['processors']} × {machine['processor']}, {machine['system']}, Python {machine['python']}, "
        f"{packages}, {machine['server']}"
    )


def moment(machine: dict[str, Any]) -> str:
    """The part that differs between two runs on the same machine."""
    return f"load {machine['load']:g} when it began, {machine['fsync_ms']:g} ms an fsync"


def commit() -> str:
    """The measured version: the newest commit, and whether files differ from it. Empty outside of a repository."""
    try:
        command = ["git", "describe", "--always", "--dirty"]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def processor() -> str:
    try:
        known = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        known = []
    names = [text.partition(":")[2].strip() for text in known if text.startswith("model name")]
    return names[0] if names else platform.machine()


def _fsync_ms(directory: Path) -> float:
    """The median time of an fsync after a small write, on the disk that the servers use."""
    times_ms = []
    with (directory / "fsync").open("wb", buffering=0) as file:
        for _ in range(FSYNCS):
            file.write(b"x" * 500)
            began_s = time.perf_counter()
            os.fsync(file.fileno())
            times_ms.append((time.perf_counter() - began_s) * 1000)
    return median(times_ms)
