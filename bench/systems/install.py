"""Installs the compared programs when a row first needs them: Python environments and Node packages.

Each is installed once, in the versions named here, into the bench's own directory; nothing is installed into the
project's environment. The dependencies of these packages are not pinned.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from bench.measure.harness import BenchFailedError

FETCHED = Path(".data/bench/fetched").resolve()
#: Long enough for a slow registry.
FETCH_WITHIN_S = 600.0


def python(name: str, packages: Sequence[str]) -> Path:
    """The `bin` directory of an environment with these packages, each given as `name==version`."""
    home = _home(name, packages)
    programs = home / "bin"
    if not (home / "complete").exists():
        shutil.rmtree(home, ignore_errors=True)
        _run(name, [sys.executable, "-m", "venv", str(home)])
        _run(name, [str(programs / "pip"), "install", "--quiet", "--disable-pip-version-check", *packages])
        (home / "complete").touch()
    return programs


def node(name: str, packages: Sequence[str]) -> Path:
    """The `node_modules` directory with these packages, each given as `name@version`."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise BenchFailedError(f"{name} needs Node 20 or newer with npm: install it, or leave out this row with --only")
    home = _home(name, packages)
    if not (home / "complete").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        quiet = ("--no-audit", "--no-fund", "--no-package-lock", "--loglevel", "error")
        _run(name, ["npm", "install", "--prefix", str(home), *quiet, *packages])
        (home / "complete").touch()
    return home / "node_modules"


def debian(package: str, program: str) -> None:
    """Installs a Debian package if the program is missing and we are root; its service is not started."""
    if Path(program).exists():
        return
    if os.getuid() or shutil.which("apt-get") is None:
        raise BenchFailedError(f"needs Debian's {package}: apt-get install {package}, or leave it out")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    _run(package, ["apt-get", "update", "-qq"])
    _run(package, ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package], quiet)


def _home(name: str, packages: Sequence[str]) -> Path:
    """A different list of packages gets a different directory."""
    return FETCHED / f"{name}-{sha256(' '.join(packages).encode()).hexdigest()[:8]}"


def _run(name: str, command: list[str], environment: dict[str, str] | None = None) -> None:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_WITHIN_S, env=environment)
    except subprocess.TimeoutExpired:
        raise BenchFailedError(f"fetching {name} took too long: {' '.join(command)}") from None
    if ran.returncode:
        raise BenchFailedError(f"fetching {name}: {(ran.stderr or ran.stdout).strip()[-500:]}")
