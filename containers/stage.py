"""The folder that the containers run from, and podman configured to work without systemd and cgroups.

Writes neither to the clone nor to the configuration of this machine. Images remain in podman's store.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = ("podman", "buildah", "runc", "debootstrap")
#: The packages that the simulated Bot API's container needs.
PACKAGES = ("containers", "chatlanes", "packages/celery-lanes", "packages/chatlanes-sandbox")
TOKEN = "1:TEST"  # noqa: S105 - not a secret
LEASE_S = 5
DOT_ENV = f"""BOT_TOKEN={TOKEN}
REDIS_PASSWORD=letters7
FLOWER_PASSWORD=letters8
GRAFANA_PASSWORD=letters9
BOT=counting_bot:handle
BOT_FOLDER=./repo/containers/bot
BOT_API_URL=http://telegram:8081
LEASE_SECONDS={LEASE_S}
"""
#: crun needs cgroups, which an unprivileged machine lacks; the default limits exceed what such a machine allows.
PODMAN = """[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
"""


@dataclass
class ContainerHost:
    """The services of docker-compose.yml, and the simulated Bot API, under `folder`."""

    folder: Path

    def prepare(self) -> None:
        """Prepares everything except the images."""
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if missing:
            sys.exit(f"missing: {' '.join(missing)}. docs/operations.md says which Debian packages have them.")
        for package in PACKAGES:
            shutil.copytree(
                ROOT / package, self.folder / "repo" / package, ignore=shutil.ignore_patterns("__pycache__")
            )
        shutil.copy(ROOT / "docker-compose.yml", self.folder)
        shutil.copytree(ROOT / "docs/deploy", self.folder / "docs/deploy")
        shutil.copy(ROOT / "containers/compose.yml", self.folder / "containers.yml")
        (self.folder / ".env").write_text(DOT_ENV)
        (self.folder / "containers.conf").write_text(PODMAN)
        run([sys.executable, "-m", "venv", str(self.folder / "venv")])
        run([str(self.folder / "venv/bin/pip"), "install", "--quiet", "podman-compose"])

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "CONTAINERS_CONF": str(self.folder / "containers.conf")}

    def podman(self, *arguments: str) -> str:
        return run(["podman", *arguments], self.environment)

    def compose(self, *arguments: str) -> str:
        files = ("-f", "docker-compose.yml", "-f", "containers.yml", "--profile", "monitoring")
        command = [str(self.folder / "venv/bin/podman-compose"), *files, *arguments]
        return run(command, self.environment, self.folder)

    def scale_workers(self, count: int) -> None:
        """Writes the number to the file, because podman-compose stops only as many containers as a file names."""
        with (self.folder / "containers.yml").open("a") as file:
            file.write(f"  worker:\n    scale: {count}\n")
        self.compose("up", "-d", "--no-build", "--no-recreate", "worker")

    def containers(self) -> dict[str, int]:
        """Name -> exit code; -1 while the container runs."""
        listed = json.loads(self.podman("ps", "--all", "--filter", "name=^chatlanes_", "--format", "json"))
        return {each["Names"][0]: -1 if each["State"] == "running" else each["ExitCode"] for each in listed}

    def is_healthy(self, container: str) -> bool:
        """The result of its health check. Without systemd, podman does not run health checks by itself."""
        checked = subprocess.run(
            ["podman", "healthcheck", "run", container], env=self.environment, capture_output=True, check=False
        )
        return checked.returncode == 0


def run(command: Sequence[str], environment: dict[str, str] | None = None, folder: Path | None = None) -> str:
    """The output of a command. If it fails, this process exits with the end of the output."""
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout
