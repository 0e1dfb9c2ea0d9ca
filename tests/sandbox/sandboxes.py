"""A sandbox as its user starts it, in a directory of its own."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from celery_lanes.embedded_server import free_port
from chatlanes_sandbox.simulator import Simulator
from tests.sandbox.calling import PATIENCE_S, ended_when_late


class SandboxProcess:
    """A sandbox in a directory of its own, with ports of its own."""

    def __init__(self, directory: Path, *options: str, **variables: str) -> None:
        self.ports = {name: free_port() for name in ("redis", "simulator", "flower")}
        ports = [argument for name, port in self.ports.items() for argument in (f"--port-{name}", str(port))]
        # Settings of the developer must not reach the sandbox; a .env would be read from `directory`.
        others = ("BOT_TOKEN", "REDIS_URL", "BOT", "PYTHONUNBUFFERED")
        mine = {name: value for name, value in os.environ.items() if name not in others}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "chatlanes_sandbox", *ports, *options],
            cwd=directory,
            env={**mine, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said = ""

    def url(self, part: str) -> str:
        return f"http://127.0.0.1:{self.ports[part]}"

    def simulator(self) -> Simulator:
        return Simulator(self.url("simulator"), token="")

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first match in the output, past or future."""
        assert self.process.stdout
        with ended_when_late(self.process):
            while not (found := re.search(pattern, self.said)):
                line = self.process.stdout.readline()
                assert line, f"it ended without {pattern!r}:\n{self.said}"
                self.said += line
        return found

    def pid(self, part: str) -> int:
        return int(self.wait_for(rf"{part} started \(pid=(\d+)\)")[1])

    def ctrl_c(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def close_terminal(self) -> None:
        """From now on its output is not read."""
        assert self.process.stdout
        self.process.stdout.close()
        self.process.send_signal(signal.SIGHUP)

    def end(self) -> int:
        """Its exit code."""
        assert self.process.stdout
        if not self.process.stdout.closed:
            self.said += self.process.communicate(timeout=PATIENCE_S * 2)[0]
        return self.process.wait(PATIENCE_S * 2)
